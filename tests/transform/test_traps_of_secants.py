"""Differences and derivatives that other tools computed wrongly: they are right here (docs/explanation/traps.md)."""

import chex
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from helpers import close, near, numbers, relative
from scipy.special import erf

import duat_jax as duat

W = numbers(6, 6, key=2) / 2
X, Y = numbers(4, 6, key=3), numbers(4, 6, key=4)


def normed(x, lib):
    centred = x - x.mean(-1, keepdims=True)
    return centred / lib.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def softmax(x, lib):
    e = lib.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rotated(x, lib):
    angles = np.arange(4)[:, None] * 10.0 ** -np.arange(3)
    a, b = x[:, :3], x[:, 3:]
    return lib.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)


def gelu(x, lib):
    return jax.nn.gelu(x, approximate=False) if lib is jnp else x * (1 + erf(x / 2**0.5)) / 2


def attention(x, lib):
    q = rotated(normed(x, lib) @ W, lib)
    return softmax(q @ q.T, lib) @ x


def pooled(x, lib):
    return lib.stack([x[:, i : i + 2].max(-1) for i in range(5)])


FUNCTIONS = {
    "one activation called twice": lambda x, lib: lib.maximum(lib.maximum(x @ W, 0) @ W, 0).sum(),
    "exponentials of a difference from the mean": lambda x, lib: lib.exp(x - x.mean(-1, keepdims=True)).sum(),
    "a product of two parts of the input": lambda x, lib: (x[0] * (x[1] @ W) * lib.exp(x[2])).sum(),
    "an encoder's layer with softmax": lambda x, lib: softmax(attention(x, lib) @ W, lib)[0, 1],
    "max pooling between activations": lambda x, lib: (pooled(gelu(x @ W, lib), lib) ** 2).sum(),
    "a layer norm": lambda x, lib: (normed(normed(x @ W, lib) @ W, lib) ** 2)[-1, 0],
    "gelu": lambda x, lib: gelu(gelu(x @ W, lib) @ W, lib).sum(),
    "rotary attention": lambda x, lib: (attention(x, lib) ** 2)[-1].sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_parts_of_a_difference_sum_to_it(name):
    """DeepLIFT's rules of other tools miss it for these; the difference is NumPy's."""
    fn = FUNCTIONS[name]
    found = duat.secant(lambda x: fn(x, jnp))(jnp.array(X), jnp.array(Y))
    close(found.parts.sum(), fn(X, np) - fn(Y, np))
    assert found.completeness.holds


def test_inputs_that_are_mapped_over_have_their_own_parts():
    """A rule of another tool takes the mean of a softmax' multipliers over the batch."""
    fn = FUNCTIONS["an encoder's layer with softmax"]
    x, y = (jnp.stack([jnp.array(X), 2 * jnp.array(Y)]), jnp.stack([jnp.array(Y), jnp.array(X)]))
    found = jax.vmap(duat.secant(lambda x: fn(x, jnp)))(x, y)
    close(found.parts.sum((1, 2)), np.array([fn(X, np) - fn(Y, np), fn(2 * Y, np) - fn(X, np)]))
    close(found.parts[0], duat.secant(lambda x: fn(x, jnp))(x[0], y[0]).parts)


TAILS = {
    "expm1": (jnp.expm1, mpmath.expm1, -40.0, -41.0),
    "expm1, a derivative": (jnp.expm1, mpmath.expm1, -40.0, -40.0),
    "softplus": (jax.nn.softplus, lambda z: mpmath.log1p(mpmath.exp(z)), -40.0, -41.0),
    "softplus at zero": (jax.nn.softplus, lambda z: mpmath.log1p(mpmath.exp(z)), 0.0, 0.0),
    "logistic": (jax.nn.sigmoid, lambda z: 1 / (1 + mpmath.exp(-z)), 40.0, 39.0),
    "logistic, a derivative": (jax.nn.sigmoid, lambda z: 1 / (1 + mpmath.exp(-z)), 40.0, 40.0),
    "tanh": (jnp.tanh, mpmath.tanh, 25.0, 24.0),
    "erf": (jax.scipy.special.erf, mpmath.erf, 8.0, 7.0),
}


@pytest.mark.parametrize("name", TAILS)
def test_slopes_keep_their_digits_where_values_are_nearly_constant(name):
    fn, exact, x, y = TAILS[name]
    with mpmath.workdps(60):
        moved = exact(mpmath.mpf(x)) - exact(mpmath.mpf(y))
        slope = float(moved / (mpmath.mpf(x) - y) if x != y else mpmath.diff(exact, x))
    relative(duat.secant(fn)(jnp.array(x), jnp.array(y)).multiplier, slope, 1e-13)


KINKED = {"relu": jax.nn.relu, "maximum": lambda z: jnp.maximum(z, 0), "clip": lambda z: jnp.clip(z, 0, 1)}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", KINKED)
def test_two_equal_tiny_points_are_on_one_side_of_a_kink(name, dtype):
    """The slope between a point and itself was the mean of both sides below the root of the smallest number."""
    fn = KINKED[name]
    for tiny in (1e-30, 1e-20, 1e-10):
        z = jnp.array(tiny, dtype)
        assert duat.secant(fn)(z, z).multiplier == 1 and duat.secant(fn)(-z, -z).multiplier == 0
    zero = jnp.zeros((), dtype)
    near(duat.secant(fn)(zero, zero).multiplier, 0.5, 1e-6)


def test_the_norm_of_zeros_has_a_slope():
    def norm(x):
        return jnp.linalg.norm(x * jnp.array([3.0, 4.0]))

    zero, one = jnp.array(0.0), jnp.array(1.0)
    assert np.isnan(jax.grad(norm)(zero))
    assert duat.secant(norm)(zero, zero).multiplier == 0 and duat.secant(norm)(one, zero).multiplier == 5
    close(duat.secant(lambda x: norm(x) ** 2)(one, zero).multiplier, 25.0)


def test_equal_logits_share_the_slope_of_a_log_softmax():
    found = duat.secant(lambda z: jax.nn.log_softmax(z)[0])(jnp.zeros(3), jnp.zeros(3))
    close(found.multiplier, np.array([2, -1, -1]) / 3)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("gap", [5.0, 25.0, 60.0])
def test_the_log_softmax_of_a_score_that_is_nearly_certain_keeps_its_digits(dtype, gap):
    """Its own slope, what the others have, was 0, and JAX's derivative is."""
    x, y = np.array([gap, 1, 2, -1]), np.array([gap - 1, 0.5, 3, 1])
    found = duat.secant(lambda z: jax.nn.log_softmax(z)[0])(jnp.array(x, dtype), jnp.array(y, dtype))
    with mpmath.workdps(60):
        logs = [[mpmath.mpf(score) - mpmath.log(mpmath.fsum(map(mpmath.exp, row))) for score in row] for row in (x, y)]
        means = [(mpmath.exp(p) - mpmath.exp(q)) / (p - q) for p, q in zip(*logs, strict=True)]
        others = [float(mean / mpmath.fsum(means)) for mean in means[1:]]
    expected = np.array([sum(others), *(-other for other in others)])
    chex.assert_trees_all_close(found.multiplier, expected.astype(dtype), rtol=64 * float(jnp.finfo(dtype).eps))


def test_a_bessel_function_near_zero_is_as_flat_as_its_rounding():
    """JAX writes it as a product whose slopes cancel at tiny points; there the slope was 1."""
    for x in (1e-300, 1e-100, 1e-20, 1e-12):
        near(duat.secant(jnp.i0)(jnp.array(x), jnp.array(x)).multiplier, x / 2, 1e-15)


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_sum_beyond_float16_is_no_verdict_and_leaves_finite_slopes():
    logits = np.zeros(1 << 17, np.float16)
    logits[0] = 12
    other = logits.copy()
    other[0] = 11.5
    found = duat.secant(lambda z: jax.nn.log_softmax(z).sum())(jnp.array(logits), jnp.array(other))
    assert found.completeness.verdict == "fails" and np.isfinite(np.asarray(found.multiplier, float)).all()


def test_rows_of_a_product_that_are_compiled_wrongly_sum():
    """JAX 0.10.2 compiles this sum over rows wrongly on CPUs, from 32,769 rows on."""
    with jax.enable_x64(False):
        steps = jnp.arange(32_769, dtype=jnp.float32)
        x = jnp.stack((steps, 0 * steps, 0 * steps), 1)
        found = duat.secant(lambda x: jax.vmap(lambda row: ((jnp.eye(3) @ row) ** 2).sum())(x)[-1])(x, 0 * x)
    close(found.parts.sum(), np.float32(32_768.0**2))
