"""The difference of two inputs through linear maps of complex numbers: that of the same maps as real matrices."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import duat_jax as duat
from tests.helpers import near

I, J = 1 + 2j, 2 - 1j


def c(x):
    """The same numbers as complex ones of their precision."""
    return x.astype(jnp.complex64 if x.dtype == jnp.float32 else jnp.complex128)


def rotated(x):
    """Positions as factors of pairs, as DeepSeek V2 writes them."""
    pairs = lax.complex(x[..., ::2], x[..., 1::2]) * jnp.exp(c(jnp.arange(4, dtype=x.dtype)) * 1j)
    return jnp.stack([pairs.real, pairs.imag], -1).reshape(x.shape)


LINEAR = {
    "positions": rotated,
    "fft": lambda x: jnp.fft.fft2(c(x)).real,
    "rfft": lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * (c(jnp.arange(5, dtype=x.dtype)) * I)),
    "conj": lambda x: (jnp.conj(c(x) * I) * J).real,
    "product": lambda x: (c(x) @ (c(jnp.ones((8, 8), x.dtype)) * I)).imag,
    "choice": lambda x: jnp.where(jnp.arange(8) > 3, c(x) * I, c(x) * J).imag,
    "quotient": lambda x: jnp.cumsum(c(x) / J, -1).imag,
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


@pytest.mark.parametrize("name", LINEAR)
def test_complex_numbers_of_a_function_that_cancels_are_judged_in_double_precision(name):
    x, y = jax.random.normal(jax.random.key(0), (2, 3, 8), jnp.float32)

    def centred(x):
        return (LINEAR[name](x) - LINEAR[name](x).mean(-1, keepdims=True)).sum()

    assert duat.secant(centred)(x, y).completeness.verdict != "fails"


def test_other_functions_of_complex_numbers_are_refused():
    with pytest.raises(duat.DuatError, match="only linear maps of complex numbers are followed"):
        duat.secant(lambda x: jnp.exp(x.astype(complex)).real.sum())(jnp.ones(2), jnp.zeros(2))
