"""Maxima, pooling, products and orders are split alike however their entries are arranged: by Shapley's value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, near
from jax import lax
from two_inputs import shapley

import duat_jax as duat
from duat_jax.transform.secant.quadrature import gauss_legendre

GROUPS = jnp.array([0, 1, 0, 0, 1, 0])
FOLDS = {
    "max": (lambda z: jnp.max(z), np.max),
    "min": (lambda z: jnp.min(z), np.min),
    "prod": (lambda z: jnp.prod(z), np.prod),
    "max of rows": (lambda z: z.reshape(2, 3).max(0), lambda z: z.reshape(2, 3).max(0)),
    "min of a matrix": (lambda z: z.reshape(2, 3).min((0, 1)), np.min),
    "prod of columns": (lambda z: z.reshape(2, 3).prod(1), lambda z: z.reshape(2, 3).prod(1)),
    "max pooling": (
        lambda z: lax.reduce_window(z, -jnp.inf, lax.max, (3,), (2,), "SAME"),
        lambda z: np.array([z[:3].max(), z[2:5].max(), z[4:].max()]),
    ),
    "min pooling": (
        lambda z: lax.reduce_window(z.reshape(2, 3), jnp.inf, lax.min, (2, 2), (1, 1), "VALID"),
        lambda z: np.array([z[[0, 1, 3, 4]].min(), z[[1, 2, 4, 5]].min()]),
    ),
    "cummax": (lax.cummax, np.maximum.accumulate),
    "cummin, backwards": (lambda z: lax.cummin(z, reverse=True), lambda z: np.minimum.accumulate(z[::-1])[::-1]),
    "cumprod": (lax.cumprod, np.cumprod),
    "cumprod, backwards": (lambda z: lax.cumprod(z, reverse=True), lambda z: np.cumprod(z[::-1])[::-1]),
}
"""Functions of six entries that are linear or constant in each, here and by NumPy."""

ORDERS = {
    "sort": jnp.sort,
    "sort, descending": lambda z: -jnp.sort(-z),
    "sort, two operands": lambda z: jnp.stack(lax.sort((z, 2 * z), num_keys=1)),
    "sort, two keys": lambda z: jnp.stack(lax.sort((jnp.round(z / 2), z), num_keys=2)),
    "top_k": lambda z: lax.top_k(z, 4)[0],
    "segment_max": lambda z: jax.ops.segment_max(z, jnp.zeros(6, int), 1),
}
"""Functions of six entries, of which any order has the same result."""


def pairs():
    """Return pairs of inputs: random ones, ones with ties at either input and at both, and equal ones."""
    keys = jax.random.split(jax.random.key(3), 16)
    drawn = [np.asarray(jax.random.normal(key, (2, 6))) for key in keys[:4]]
    tied = [np.asarray(jax.random.randint(key, (2, 6), -1, 3), float) for key in keys[4:]]
    same = np.array([[1.0] * 6, [-2.0] * 6])
    return np.stack([*drawn, *tied, same, same[::-1], same[[0, 0]]])


PAIRS = pairs()
DTYPES = ("bfloat16", "float32", "float64")


def read_out(result):
    """Return the product with numbers that tell its entries apart."""
    return (result.reshape(-1) * jnp.cos(jnp.arange(result.size, dtype=result.dtype))).sum()


def splits(functions, pairs, dtype="float64"):
    """Return the secant of every function between all pairs."""
    x, y = jnp.swapaxes(jnp.asarray(pairs, dtype), 0, 1)
    return jax.jit(
        lambda x, y: {
            name: jax.vmap(duat.secant(lambda z, fn=fn: read_out(fn(z))))(x, y) for name, fn in functions.items()
        }
    )(x, y)


QUICK = ("min of a matrix", "max pooling", "prod", "cummax")


@pytest.mark.parametrize(
    ("dtype", "names"), [("float64", QUICK), *(pytest.param(d, FOLDS, marks=pytest.mark.slow) for d in DTYPES[1:])]
)
def test_folds_have_shapleys_value(dtype, names):
    found = splits({name: FOLDS[name][0] for name in names}, PAIRS, dtype)
    for name, secant in found.items():

        def game(*entries, by_numpy=FOLDS[name][1]):
            result = np.atleast_1d(by_numpy(np.array(entries)))
            return result @ np.cos(np.arange(len(result)))

        assert secant.completeness.within.all() and not secant.discontinuities, name
        expected = np.array([shapley(game, x, y) for x, y in PAIRS.astype(dtype).astype(float)])
        close(secant.parts, expected.astype(dtype), layers=6)


@pytest.mark.parametrize(
    ("dtype", "names"),
    [
        ("float64", ("sort, two operands", "top_k")),
        *(pytest.param(d, ORDERS, marks=pytest.mark.slow) for d in DTYPES),
    ],
)
def test_a_permutation_of_entries_permutes_parts_and_equal_entries_have_equal_parts(dtype, names):
    permutation = np.array([3, 1, 5, 0, 2, 4])
    x, y = PAIRS[:, 0], PAIRS[:, 1]
    equal = (x[:, :, None] == x[:, None]) & (y[:, :, None] == y[:, None])
    assert equal.sum() > 1.5 * x.size
    found = splits({name: ORDERS[name] for name in names}, np.concatenate([PAIRS, PAIRS[:, :, permutation]]), dtype)
    for name, secant in found.items():
        assert secant.completeness.within.all(), name
        slopes, permuted = np.split(np.asarray(secant.multiplier, float), 2)
        within = 8 * float(jnp.finfo(dtype).eps) * np.abs(slopes).max()
        near(permuted, slopes[:, permutation], within=within)
        near(np.where(equal, slopes[:, :, None], 0), np.where(equal, slopes[:, None], 0), within=within)


def test_ties_at_one_input_are_in_the_order_of_the_other():
    found = duat.secant(lambda z: jnp.sort(z) @ jnp.array([1.0, 2.0]))(jnp.array([1.0, 1.0]), jnp.array([2.0, 0.0]))
    close(found.multiplier, [2.0, 1.0])
    assert not any(found.discontinuities.values()) and found.completeness.verdict == "holds"


def test_entries_that_stand_at_a_maximum_share_its_slope():
    z = jnp.array([2.0, 2.0, 2.0, 1.0])
    found = duat.secant(jnp.max)(z, z)
    close(found.multiplier, jnp.array([1 / 3, 1 / 3, 1 / 3, 0]))
    close(found.multiplier, jax.grad(jnp.max)(z))


@pytest.mark.slow
def test_a_maximum_of_a_vocabulary_is_split_evenly():
    n, split = 50_000, jax.jit(duat.secant(jnp.max))
    found = split(jnp.ones(n, "float32"), jnp.zeros(n, "float32"))
    near(found.parts, jnp.full(n, 1 / n), within=1e-4 / n)
    assert split(*jax.random.normal(jax.random.key(0), (2, n), "float32")).completeness.verdict == "holds"


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("factors", [pytest.param(n, marks=[pytest.mark.slow] * (n != 65)) for n in (1, 64, 65, 256)])
def test_long_products_sum_and_equal_factors_have_equal_parts(factors, sign):
    spread, ones = jnp.linspace(0.9, 1.1, factors), jnp.ones(factors)
    x, y = jnp.stack([spread, ones]), sign * jnp.stack([spread[::-1], 0.5 * ones])
    found = jax.jit(jax.vmap(duat.secant(jnp.prod)))(x, y)
    assert found.completeness.within.all()
    close(found.parts[1], jnp.full(factors, found.difference[1] / factors), layers=20)


def test_quadrature_is_exact_for_every_degree():
    for points in (1, 2, 5, 32, 129):
        t, u, weights = gauss_legendre(points)
        degrees = np.arange(2 * points)
        for ends in (t, u):
            moments = (ends[:, None] ** degrees * weights[:, None]).sum(0) * (degrees + 1)
            near(moments, np.ones_like(moments), within=1e-15 * (2 + points))
