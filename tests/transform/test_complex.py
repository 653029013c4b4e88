"""The difference of two inputs through linear maps of complex numbers: that of the same maps as real matrices."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import duat_jax as duat
from tests.helpers import near

I, J = jnp.complex128(1 + 2j), jnp.complex128(2 - 1j)
TURNED = jnp.exp(jnp.complex128(1j) * jnp.arange(4.0, dtype=complex))


def rotated(x):
    """Positions as factors of pairs, as DeepSeek V2 writes them."""
    pairs = lax.complex(x[..., ::2], x[..., 1::2]) * TURNED
    return jnp.stack([pairs.real, pairs.imag], -1).reshape(x.shape)


LINEAR = {
    "positions": rotated,
    "fft": lambda x: jnp.fft.fft2(x.astype(complex)).real,
    "rfft": lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * (jnp.arange(5, dtype=complex) * I)),
    "conj": lambda x: (jnp.conj(x.astype(complex) * I) * J).real,
    "product": lambda x: (x.astype(complex) @ jnp.full((8, 8), I)).imag,
    "choice": lambda x: jnp.where(jnp.arange(8) > 3, x.astype(complex) * I, x.astype(complex) * J).imag,
    "quotient": lambda x: jnp.cumsum(x.astype(complex) / J, -1).imag,
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_maps_of_complex_numbers_are_followed(name):
    x, y = jax.random.normal(jax.random.key(0), (2, 3, 8))
    matrix = jax.jacobian(LINEAR[name])(x).reshape(24, 24)

    def read(z):
        return jnp.sum(jnp.tanh(z.reshape(-1)) * jnp.arange(24.0))

    difference = duat.secant(lambda x: read(LINEAR[name](x)))(x, y)
    near(difference.parts, duat.secant(lambda x: read(matrix @ x.reshape(-1)))(x, y).parts, within=1e-12)
    assert difference.completeness.verdict == "holds"


def test_other_functions_of_complex_numbers_are_refused():
    with pytest.raises(duat.DuatError, match="only linear maps of complex numbers are followed"):
        duat.secant(lambda x: jnp.exp(x.astype(complex)).real.sum())(jnp.ones(2), jnp.zeros(2))
