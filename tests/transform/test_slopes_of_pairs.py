"""Slopes in single precision between random pairs of points: times the distance, the difference of values in double."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close
from jax import lax
from test_primitives import OF_OTHER_VERSIONS, names_of

import duat_jax as duat
from duat_jax.transform.primitives import ELEMENTWISE
from duat_jax.transform.secant.closed_secants import CLOSED
from duat_jax.transform.secant.rules import RULES


def fixed(number, like):
    """Return a number in the shape and dtype of an array."""
    return jnp.full_like(like, number)


RANGES = {
    "abs": (jnp.abs, -3, 3),
    "acos": (jnp.arccos, -1, 1),
    "acosh": (jnp.arccosh, 1, 9),
    "asin": (jnp.arcsin, -1, 1),
    "asinh": (jnp.arcsinh, -9, 9),
    "atan": (jnp.arctan, -9, 9),
    "atan2": (lambda z: jnp.arctan2(z, fixed(0.7, z)), -9, 9),
    "atan2, below": (lambda z: jnp.arctan2(fixed(0.7, z), z), -9, 9),
    "atanh": (jnp.arctanh, -0.99, 0.99),
    "bessel_i0e": (lax.bessel_i0e, -5, 5),
    "bessel_i1e": (lax.bessel_i1e, -5, 5),
    "cbrt": (lax.cbrt, -9, 9),
    "clamp": (lambda z: lax.clamp(fixed(-1, z), z, fixed(2, z)), -3, 3),
    "cos": (jnp.cos, -6, 6),
    "cosh": (jnp.cosh, -6, 6),
    "digamma": (lax.digamma, 0.1, 9),
    "div": (lambda z: 1.5 / z, 0.1, 9),
    "erf": (lax.erf, -3, 3),
    "erf_inv": (lax.erf_inv, -0.9999, 0.9999),
    "erfc": (lax.erfc, -3, 3),
    "exp": (jnp.exp, -40, 40),
    "exp2": (jnp.exp2, -5, 5),
    "expm1": (jnp.expm1, -5, 5),
    "igamma": (lambda z: lax.igamma(fixed(2.5, z), z), 0.01, 9),
    "igammac": (lambda z: lax.igammac(fixed(2.5, z), z), 0.01, 9),
    "integer_pow": (lambda z: z**5, -3, 3),
    "integer_pow, even": (lambda z: z**4, -3, 3),
    "integer_pow, negative": (lambda z: z**-3, 0.1, 9),
    "lgamma": (lax.lgamma, 0.1, 9),
    "log": (jnp.log, 0.01, 9),
    "log1p": (jnp.log1p, -0.9, 9),
    "logistic": (lax.logistic, -8, 8),
    "max": (lambda z: jnp.maximum(z, fixed(0.3, z)), -3, 3),
    "min": (lambda z: jnp.minimum(z, fixed(0.3, z)), -3, 3),
    "polygamma": (lambda z: lax.polygamma(fixed(1, z), z), 0.1, 9),
    "pow, of the base": (lambda z: lax.pow(z, fixed(1.7, z)), 0.01, 9),
    "pow, of the exponent": (lambda z: lax.pow(fixed(1.7, z), z), -5, 5),
    "regularized_incomplete_beta": (lambda z: lax.betainc(fixed(2, z), fixed(3, z), z), 0.01, 0.99),
    "rem": (lambda z: lax.rem(z, fixed(0.7, z)), -0.6, 0.6),
    "rsqrt": (lax.rsqrt, 0.01, 9),
    "sin": (jnp.sin, -60, 60),
    "sinh": (jnp.sinh, -6, 6),
    "sqrt": (jnp.sqrt, 0.01, 9),
    "square": (lax.square, -3, 3),
    "stop_gradient": (lax.stop_gradient, -3, 3),
    "tan": (jnp.tan, -9, 9),
    "tanh": (jnp.tanh, -4, 4),
    "exact GELU": (lambda z: jax.nn.gelu(z, approximate=False), -4, 4),
    "approximate GELU": (lambda z: jax.nn.gelu(z, approximate=True), -4, 4),
    "silu": (jax.nn.silu, -6, 6),
    "softplus": (jax.nn.softplus, -6, 6),
    "mish": (jax.nn.mish, -6, 6),
    "elu": (jax.nn.elu, -4, 4),
    "sinc": (jnp.sinc, -3, 3),
}
"""Functions without jumps, each between two numbers."""

if hasattr(lax, "polynomial_p"):  # primitives of newer versions
    RANGES |= {
        "log2": (lax.log2, 0.01, 9),
        "one_minus_square": (lax.one_minus_square, -3, 3),
        "polynomial": (lambda z: lax.polynomial(z, [fixed(c, z) for c in (0.5, -1.0, 0.0, 2.0)]), -3, 3),
    }


def pairs(low, high, count, key):
    """Return random pairs in single precision: half of them anywhere, half at distances of all sizes."""
    random = np.random.default_rng(key)
    x, y = random.uniform(low, high, (2, count))
    near = np.clip(x + random.choice([-1, 1], count) * (high - low) * 10 ** random.uniform(-6, 0, count), low, high)
    return x.astype(np.float32), np.where(np.arange(count) % 2, y, near).astype(np.float32)


def test_every_elementwise_function_is_walked():
    walked = set().union(*(names_of(fn, jnp.ones(1)) for fn, *_ in RANGES.values()))
    elementwise = {name for name, rule in RULES.items() if name in ELEMENTWISE and not rule.constant}
    assert elementwise - walked <= {*OF_OTHER_VERSIONS}


ITERATED = ("igamma", "igammac", "regularized_incomplete_beta")
"""Functions that are computed step by step, of which fewer pairs are drawn."""

LEAST_CHANGE = dict.fromkeys(RANGES, 0.002) | {"bessel_i1e": 0.01}
"""Which part of its values the change between two points is at least: below it their rounding is too large."""

QUICK = ("erf", "exact GELU", "bessel_i1e", "sin", "logistic", "expm1")


@pytest.mark.parametrize(
    ("names", "count"), [(QUICK, 20_000), pytest.param(tuple(RANGES), 200_000, marks=pytest.mark.slow)]
)
def test_a_slope_times_the_distance_is_the_difference_in_double_precision(names, count):
    counts = {name: count // 20 if name in ITERATED else count for name in names}
    drawn = {name: pairs(*RANGES[name][1:], counts[name], key) for key, name in enumerate(names)}

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
    eps, counted, errors = float(np.finfo(np.float32).eps), 0, {}
    for name, slope in slopes.items():
        x, y = (side.astype(float) for side in drawn[name])
        (at_x, at_y), rounded = (value[name] for value in exact), (value[name] for value in single)
        change, size = at_x - at_y, np.maximum(abs(at_x), abs(at_y))
        rounding = sum(abs(value - correct) for value, correct in zip(rounded, (at_x, at_y), strict=True))
        kept = (x != y) & (abs(change) > LEAST_CHANGE[name] * size) & (250 * eps * abs(change) > rounding)
        counted += kept.sum()
        off = abs(np.asarray(slope, float) * (x - y) / np.where(kept, change, 1) - 1)[kept] / eps
        errors |= {} if off.max() <= 1000 else {name: off.max()}
        assert slope.dtype == jnp.float32
    assert errors == {}
    assert counted > sum(counts.values()) / 2


def test_a_closed_secant_times_the_distance_is_the_difference():
    names = [name for name in CLOSED if name in RANGES]
    first, second = (jnp.linspace(0.3, 0.6, 5), jnp.linspace(0.7, 0.2, 5))
    ranges = {name: RANGES[name][1:] for name in names}
    xs, ys = ({name: low + (high - low) * at for name, (low, high) in ranges.items()} for at in (first, second))
    secants = jax.jit(lambda xs, ys: {name: CLOSED[name](xs[name], ys[name]) * (xs[name] - ys[name]) for name in names})
    differences = jax.jit(
        lambda xs, ys: {name: RANGES[name][0](xs[name]) - RANGES[name][0](ys[name]) for name in names}
    )
    found, expected = secants(xs, ys), differences(xs, ys)
    assert len(names) > 20
    for name in names:
        close(found[name], expected[name], layers=10)


def test_a_quotient_of_products_that_move_has_its_difference():
    x, y = jnp.array([0.7, -1.2, 2.0]), jnp.array([0.4, 0.9, 1.5])
    difference = duat.secant(lambda z: z[0] * z[1] / z[2])(x, y)
    close(difference.parts.sum(), x[0] * x[1] / x[2] - y[0] * y[1] / y[2])
