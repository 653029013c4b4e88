"""How a function of numbers moves between two points: the coefficients of an exact linear difference.

Between two points `x` and `y` an elementwise function of one argument has its secant, `f(x) − f(y) = s (x − y)`; one of
several splits evenly over its arguments, each argument's share averaged over the orders in which they may move from `y`
to `x` (Shapley's value), which for a product is `Δ(a b) = ā Δb + b̄ Δa`.

Secants that have a form without a difference of nearly equal numbers use it.  All others are a quotient, and where both
points are closer than `eps^(1/3)` of the function's own scale the derivative at their midpoint: there the quotient's
rounding, `eps f / Δ`, and the midpoint's error, `f''' Δ² / 24`, are equally large.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import factorial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

Function = Callable[..., Array]


def _exp(x: Array, y: Array, fx: Array, fy: Array) -> Array:
    distance = jnp.abs(x - y)
    # The logarithmic mean of both values; of two points at minus infinity it is zero.
    ratio = -jnp.expm1(-distance) / jnp.where(distance > 0, distance, 1)
    return jnp.maximum(fx, fy) * jnp.where(distance > 0, ratio, 1)


def _log(x: Array, y: Array, fx: Array, fy: Array) -> Array:
    low = jnp.minimum(x, y)
    ratio = jnp.abs(x - y) / low
    return jnp.where(ratio > 0, jnp.log1p(ratio) / jnp.where(ratio > 0, ratio, 1), 1) / low


def _tanh_over(z: Array) -> Array:
    return jnp.where(z == 0, 1, jnp.tanh(z) / jnp.where(z == 0, 1, z))


def _power(n: int, x: Array, y: Array) -> Array:
    """Return `(xⁿ − yⁿ) / (x − y)` for a positive `n`."""
    total, power = jnp.ones_like(x), x
    for _ in range(n - 1):
        total, power = total * y + power, power * x
    return total


CLOSED: dict[str, Callable[[Array, Array, Array, Array], Array]] = {
    "exp": _exp,
    "log": _log,
    "tanh": lambda x, y, fx, fy: _tanh_over(x - y) * (1 - fx * fy),
    "logistic": lambda x, y, fx, fy: _tanh_over((x - y) / 2) / 2 * (fx * (1 - fy) + fy * (1 - fx)),
    "sqrt": lambda x, y, fx, fy: 1 / (fx + fy),
    "rsqrt": lambda x, y, fx, fy: -fx * fy / (x * fx + y * fy),
    "square": lambda x, y, fx, fy: x + y,
}
"""Secants of functions of one argument, from both points and both values."""


def integer_power(n: int, x: Array, y: Array, fx: Array, fy: Array) -> Array:
    """Return the secant of `z ↦ zⁿ`.

    Args:
        n: the power.
        x: one point.
        y: the other one.
        fx: `xⁿ`.
        fy: `yⁿ`.
    """
    if n == 0:
        return jnp.zeros_like(x)
    return _power(n, x, y) if n > 0 else -_power(-n, x, y) * fx * fy


_ONE = jnp.ones_like
SCALES: dict[str, Callable[[Array], Array]] = {
    **dict.fromkeys(("sin", "cos", "tan", "sinh", "cosh", "expm1", "exp2", "erf", "erfc", "bessel_i0e"), _ONE),
    **dict.fromkeys(("bessel_i1e", "atan2"), _ONE),
    **dict.fromkeys(("cbrt", "pow", "lgamma", "digamma", "polygamma", "igamma", "igammac", "log2"), jnp.abs),
    **dict.fromkeys(("asinh", "atan"), lambda z: 1 + jnp.abs(z)),
    **dict.fromkeys(("asin", "acos", "atanh", "erf_inv"), lambda z: 1 - jnp.abs(z)),
    "log1p": lambda z: 1 + z,
    "acosh": lambda z: z - 1,
    "regularized_incomplete_beta": lambda z: jnp.minimum(jnp.abs(z), jnp.abs(1 - z)),
    **dict.fromkeys(("max", "min", "abs", "clamp", "rem"), jnp.zeros_like),
}
"""Over what distance a function bends: `(f / f''')^(1/3)` in size.  What is made of straight pieces never does: its
quotient is exact wherever the points differ."""


def quotient(f: Function, name: str, operands: Sequence[Array], k: int, x: Array, y: Array) -> Array:
    """Return the secant of a function in one argument, the others fixed.

    Args:
        f: the elementwise function.
        name: its primitive.
        operands: its arguments; the one in question is replaced.
        k: which one that is.
        x: one point.
        y: the other one.
    """

    def of(z: Array) -> Array:
        return f(*operands[:k], z, *operands[k + 1 :])

    middle, difference = (x + y) / 2, x - y
    derivative = jax.jvp(of, (middle,), (jnp.ones_like(middle),))[1]
    near = jnp.finfo(x.dtype).eps ** (1 / 3) * SCALES[name](middle)
    # Of equal infinities the difference isn't a number.
    far = jnp.abs(difference) > near
    return jnp.where(far, (of(x) - of(y)) / jnp.where(far, difference, 1), derivative)


def coefficients(f: Function, name: str, points: Sequence[tuple[Array, Array]], moving: Sequence[int]) -> list[Array]:
    """Return each moving argument's coefficient in the even split of an elementwise function's difference.

    Args:
        f: the function.
        name: its primitive.
        points: every argument at both points.
        moving: which arguments move.
    """
    found = []
    for k in moving:
        others = [j for j in moving if j != k]
        total: Any = 0
        for sides in product((0, 1), repeat=len(others)):
            chosen = [point[0] for point in points]
            for j, side in zip(others, sides, strict=True):
                chosen[j] = points[j][side]
            at_x = sides.count(0)
            weight = factorial(at_x) * factorial(len(others) - at_x) / factorial(len(moving))
            total = total + weight * quotient(f, name, chosen, k, *points[k])
        found.append(total)
    return found
