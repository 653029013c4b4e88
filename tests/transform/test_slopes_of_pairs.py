"""Slopes in single precision between random pairs of points: times the distance, the difference of values in double."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import duat_jax as duat

RANGES = {
    "erf": (lax.erf, -3, 3),
    "erfc": (lax.erfc, -3, 3),
    "exact GELU": (lambda z: jax.nn.gelu(z, approximate=False), -4, 4),
    "approximate GELU": (lambda z: jax.nn.gelu(z, approximate=True), -4, 4),
    "silu": (jax.nn.silu, -6, 6),
    "softplus": (jax.nn.softplus, -6, 6),
    "mish": (jax.nn.mish, -6, 6),
    "elu": (jax.nn.elu, -4, 4),
    "i0e": (lax.bessel_i0e, -5, 5),
    "i1e": (lax.bessel_i1e, -5, 5),
    "lgamma": (lax.lgamma, 0.1, 9),
    "digamma": (lax.digamma, 0.1, 9),
    "erf_inv": (lax.erf_inv, -0.95, 0.95),
    "tanh": (jnp.tanh, -4, 4),
    "logistic": (lax.logistic, -8, 8),
    "log1p": (jnp.log1p, -0.9, 9),
    "expm1": (jnp.expm1, -5, 5),
    "exp": (jnp.exp, -5, 5),
    "log": (jnp.log, 0.01, 9),
    "sin": (jnp.sin, -6, 6),
    "tan": (jnp.tan, -1.4, 1.4),
    "atan": (jnp.arctan, -9, 9),
    "asinh": (jnp.arcsinh, -9, 9),
    "sqrt": (jnp.sqrt, 0.01, 9),
    "cube root": (jnp.cbrt, 0.01, 9),
    "power": (lambda z: lax.pow(z, jnp.full_like(z, 1.7)), 0.01, 9),
    "sinc": (jnp.sinc, -3, 3),
}
"""Functions without jumps, each between two numbers."""


def pairs(low, high, count, key):
    """Return random pairs in single precision: half of them anywhere, half at distances of all sizes."""
    random = np.random.default_rng(key)
    x, y = random.uniform(low, high, (2, count))
    near = np.clip(x + random.choice([-1, 1], count) * (high - low) * 10 ** random.uniform(-6, 0, count), low, high)
    return x.astype(np.float32), np.where(np.arange(count) % 2, y, near).astype(np.float32)


QUICK = ("erf", "exact GELU", "i1e", "tanh", "logistic", "expm1")


@pytest.mark.parametrize(
    ("names", "count"), [(QUICK, 20_000), pytest.param(tuple(RANGES), 1_000_000, marks=pytest.mark.slow)]
)
def test_a_slope_times_the_distance_is_the_difference_in_double_precision(names, count):
    drawn = {name: pairs(*RANGES[name][1:], count, key) for key, name in enumerate(names)}

    def values(z):
        return {name: RANGES[name][0](z[name]) for name in names}

    def both(dtype):
        points = [{name: jnp.asarray(pair[side], dtype) for name, pair in drawn.items()} for side in (0, 1)]
        return points, [jax.tree.map(lambda v: np.asarray(v, float), of_all(point)) for point in points]

    of_all, total = jax.jit(values), duat.secant(lambda z: sum(value.sum() for value in values(z).values()))
    with jax.numpy_dtype_promotion("standard"):
        points, single = both(jnp.float32)
        exact = both(jnp.float64)[1]
        slopes = jax.jit(lambda x, y: total(x, y).multiplier)(*points)
    eps, counted = float(np.finfo(np.float32).eps), 0
    for name, slope in slopes.items():
        x, y = (side.astype(float) for side in drawn[name])
        (at_x, at_y), rounded = (value[name] for value in exact), (value[name] for value in single)
        change, size = at_x - at_y, np.maximum(abs(at_x), abs(at_y))
        rounding = sum(abs(value - correct) for value, correct in zip(rounded, (at_x, at_y), strict=True))
        kept = (x != y) & (abs(change) > 0.01 * size) & (250 * eps * abs(change) > rounding)
        counted += kept.sum()
        off = abs(np.asarray(slope, float) * (x - y) / np.where(kept, change, 1) - 1)[kept]
        assert slope.dtype == jnp.float32 and off.max() <= 1000 * eps, (name, off.max() / eps)
    assert counted > count * len(names) / 2
