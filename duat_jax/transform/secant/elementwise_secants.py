"""Secants of elementwise functions: the coefficients of an exact linear difference between two points.

Between two points `x` and `y` an elementwise function of one argument has its secant, `f(x) − f(y) = s (x − y)`; one of
several splits evenly over its arguments, each argument's share averaged over the orders in which they may move from `y`
to `x` (Shapley's value), which for a product is `Δ(a b) = ā Δb + b̄ Δa`.

Secants that have a form without a difference of nearly equal numbers use it (`CLOSED`).  All others have
`slope`: the mean of the derivative between both points where that agrees with the difference of both values, else the
quotient.
Everything is computed in single precision at least.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import factorial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from duat_jax.transform.secant.closed_secants import CLOSED, integer_power, of_angle, of_power

Function = Callable[..., Array]

STRAIGHT = frozenset(("max", "min", "rem", "clamp"))
"""Piecewise linear functions: the quotient is exact wherever the points differ."""

SLOPED = STRAIGHT | {
    *("erf", "erfc", "erf_inv", "lgamma", "digamma", "polygamma", "igamma", "igammac"),
    *("bessel_i0e", "bessel_i1e", "pow", "atan2"),
}
"""Elementwise functions without a closed form for all of their arguments at all points."""

ROUNDING = {"regularized_incomplete_beta": 256}
"""The rounding of a function's values, in machine epsilons, where it is more than a few, as of a continued fraction."""


def widened(x: Array) -> Array:
    """Convert floating-point numbers to single precision at least."""
    return x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) and jnp.finfo(x.dtype).bits < 32 else x


def slope(
    derivative: Callable[[Any], Any], x: Any, y: Any, at_x: Any, at_y: Any, *, straight: bool = False, rounding: int = 8
) -> Any:
    """Return `(f(x) − f(y)) / (x − y)` entry by entry, and the derivative where both points are equal."""
    # Of near points the quotient is lost in the rounding of both values. There it is the mean of the derivative between
    # them, by a rule of Gauss and Legendre. Points are near where that mean and the values agree up to the values'
    # rounding, so that the slope times the distance is as exact as the values are, whatever the function.
    fine = max(jnp.finfo(leaf.dtype).bits for leaf in jax.tree.leaves(x)) > 32
    # A piecewise linear function needs the two sides of equal points alone; an even number of points has none in the
    # middle, where a function of `|z|` has no derivative at zero.
    places, weights = (jnp.array(a / 2) for a in np.polynomial.legendre.leggauss(2 if straight else 6 if fine else 4))

    def step(totals: Any, node: tuple[Array, Array]) -> tuple[Any, None]:
        place, weight = node
        values = derivative(jax.tree.map(lambda a, b: _between(a, b, place), x, y))

        def added(total: _Derivatives, value: Array) -> _Derivatives:
            mean = total.mean + weight.astype(value.dtype) * value
            return _Derivatives(mean, jnp.minimum(total.least, value), jnp.maximum(total.most, value))

        return jax.tree.map(added, totals, values, is_leaf=lambda leaf: isinstance(leaf, _Derivatives)), None

    nothing = jax.tree.map(lambda v: _Derivatives(*(jnp.full_like(v, z) for z in (0, jnp.inf, -jnp.inf))), at_x)
    # Unrolled, compilers evaluate all points in one pass.
    derivatives, _ = lax.scan(step, nothing, (places, weights), unroll=True)

    def chosen(x: Array, y: Array, at_x: Array, at_y: Array, derivatives: _Derivatives) -> Array:
        mean, distance, moved = derivatives.mean, jnp.where(x == y, 0, x - y), at_x - at_y
        eps = float(jnp.finfo(x.dtype).eps)
        # Values are rounded by their own size, and by how far a rounding of their points moves them; where derivatives
        # differ, so that their mean may be off, by their own size alone.
        by_points = jnp.minimum(jnp.abs(x), jnp.abs(y)) * jnp.abs(mean)
        by_points = jnp.where(derivatives.most - derivatives.least <= jnp.abs(mean) / 2, by_points, 0)
        size = jnp.maximum(jnp.maximum(jnp.abs(at_x), jnp.abs(at_y)), by_points)
        near = (distance == 0) | ((not straight) & (jnp.abs(mean * distance - moved) <= rounding * eps * size))
        quotient = moved / jnp.where(distance == 0, 1, distance)
        # Where there is no derivative at two equal points, any slope is exact.
        return jnp.where(near & jnp.isfinite(mean), mean, jnp.where(distance == 0, 0, quotient))

    return jax.tree.map(chosen, x, y, at_x, at_y, derivatives)


class _Derivatives(NamedTuple):
    """The derivatives between two points: their mean, the least and the most."""

    mean: Array
    least: Array
    most: Array


def _between(x: Array, y: Array, place: Array) -> Array:
    """Return a point between two points, at a place from −1/2 to 1/2; around two zeros, on both sides."""
    apart = jnp.where((x == 0) & (y == 0), float(jnp.finfo(x.dtype).tiny) ** 0.5, x - y)
    middle = jnp.where(x == y, x, x / 2 + y / 2)
    return middle + place.astype(x.dtype) * apart


def _values(name: str, k: int, operands: Sequence[Array], x: Array, y: Array, f: Function) -> tuple[Array, Array]:
    """Return a function's values at two points; near a common limit, their distances from it."""
    if name in ("erf", "erfc"):
        sign = jnp.sign(x) if name == "erf" else -jnp.sign(x)
        tail = (jnp.sign(x) == jnp.sign(y)) & (jnp.minimum(jnp.abs(x), jnp.abs(y)) > 0.5)
        distances = [-sign * lax.erfc(jnp.abs(z)) for z in (x, y)]
    elif name == "igamma" and k == 1:
        tail, distances = jnp.minimum(x, y) > operands[0], [-lax.igammac(operands[0], z) for z in (x, y)]
    elif name == "igammac" and k == 1:
        tail, distances = jnp.maximum(x, y) < operands[0], [-lax.igamma(operands[0], z) for z in (x, y)]
    elif name == "regularized_incomplete_beta" and k == 2:
        tail, distances = jnp.minimum(x, y) > 0.5, [-lax.betainc(operands[1], operands[0], 1 - z) for z in (x, y)]
    elif name == "lgamma":
        return _log_gamma(x, f), _log_gamma(y, f)
    else:
        return f(x), f(y)
    return jnp.where(tail, distances[0], f(x)), jnp.where(tail, distances[1], f(y))


def _log_gamma(z: Array, f: Function) -> Array:
    """Return `log Γ(z)`, around its zeros at 1 and 2 by its series at 2, since `f` cancels there."""
    from scipy.special import zeta  # JAX brings it, but loads it only when it is needed

    terms = 60 if jnp.finfo(z.dtype).bits > 32 else 26
    k = np.arange(2, terms)
    series = np.array([0, 1 - np.euler_gamma, *((-1.0) ** k * zeta(k, 2) / k)])
    inside, above = (z > 0.5) & (z < 3), z > 1.5
    t = jnp.where(inside, jnp.where(above, z - 2, z - 1), 0)
    at_two = polynomial(list(jnp.array(series, z.dtype)), t, jnp.zeros_like(t)) * t
    return jnp.where(inside, at_two - jnp.where(above, 0, jnp.log1p(t)), f(z))


def secant(f: Function, name: str, operands: Sequence[Array], k: int, x: Array, y: Array) -> Array:
    """Return the secant of an elementwise function in one argument, the others fixed."""
    dtype, x, y = x.dtype, widened(x), widened(y)
    if name in CLOSED:
        return CLOSED[name](x, y).astype(dtype)
    operands = [widened(operand) for operand in operands]

    def evaluate(z: Array) -> Array:
        return f(*operands[:k], z, *operands[k + 1 :])

    def derivative(z: Array) -> Array:
        return jax.jvp(evaluate, (z,), (jnp.ones_like(z),))[1]

    # The derivative of an angle is smooth across its cut, where its values jump.
    estimate = slope(
        derivative,
        x,
        y,
        *_values(name, k, operands, x, y, evaluate),
        straight=name in STRAIGHT,
        rounding=ROUNDING.get(name, 8),
    )
    if name == "atan2":
        return of_angle(k, operands[1 - k], x, y, estimate).astype(dtype)
    if name == "pow" and jnp.issubdtype(operands[1 - k].dtype, jnp.floating):
        return of_power(k, operands[1 - k], x, y, estimate).astype(dtype)
    return estimate.astype(dtype)


def whole_power(n: int, x: Array, y: Array) -> Array:
    """Return the secant of `z ↦ zⁿ`."""
    return integer_power(n, widened(x), widened(y)).astype(x.dtype)


def polynomial(values: Sequence[Array], x: Array, y: Array) -> Array:
    """Return the secant of a polynomial, by Horner's rule for divided differences."""
    *lower, value = (jnp.broadcast_to(coefficient, x.shape) for coefficient in values)
    total = jnp.zeros_like(x)
    for coefficient in reversed(lower):
        total, value = total * y + value, value * x + coefficient
    return total


def coefficients(f: Function, name: str, points: Sequence[Sequence[Array]], moving: Sequence[int]) -> list[Array]:
    """Return each moving argument's coefficient in the even split of an elementwise function's difference."""
    results = []
    for k in moving:
        remaining = [j for j in moving if j != k]
        total: Any = 0
        for sides in product((0, 1), repeat=len(remaining)):
            chosen = [point[0] for point in points]
            for j, side in zip(remaining, sides, strict=True):
                chosen[j] = points[j][side]
            at_x = sides.count(0)
            weight = factorial(at_x) * factorial(len(remaining) - at_x) / factorial(len(moving))
            total = total + weight * secant(f, name, chosen, k, *points[k])
        results.append(total)
    return results
