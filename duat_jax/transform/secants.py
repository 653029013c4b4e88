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


def widened(x: Array) -> Array:
    """Return the same floating-point numbers in single precision at least.

    Args:
        x: the numbers.
    """
    return x.astype(jnp.float32) if jnp.finfo(x.dtype).bits < 32 else x


def _exp(x: Array, y: Array, fx: Array, fy: Array) -> Array:
    distance = jnp.abs(x - y)
    # The logarithmic mean of both values; of two points at minus infinity it is zero.
    ratio = -jnp.expm1(-distance) / jnp.where(distance > 0, distance, 1)
    return jnp.maximum(fx, fy) * jnp.where(distance > 0, ratio, 1)


def _log(x: Array, y: Array, fx: Array, fy: Array) -> Array:
    low, distance = jnp.minimum(x, y), jnp.abs(x - y)
    near, far = (distance > 0) & (distance <= low), distance > low
    ratio = jnp.where(near, distance / low, 1)
    return jnp.where(far, (fx - fy) / jnp.where(far, x - y, 1), jnp.where(near, jnp.log1p(ratio) / ratio, 1) / low)


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
    # Of two zeros any slope is exact, and the derivative isn't finite.
    "sqrt": lambda x, y, fx, fy: 1 / jnp.where(fx + fy == 0, jnp.inf, fx + fy),
    "rsqrt": lambda x, y, fx, fy: -fx * fy / (x * fx + y * fy),
    "square": lambda x, y, fx, fy: x + y,
    "one_minus_square": lambda x, y, fx, fy: -x - y,
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


def polynomial(values: Sequence[Array], x: Array, y: Array) -> Array:
    """Return the secant of a polynomial, by Horner's rule for divided differences.

    Args:
        values: its coefficients, the constant one first.
        x: one point.
        y: the other one.
    """
    *lower, value = (jnp.broadcast_to(each, x.shape) for each in values)
    total = jnp.zeros_like(x)
    for each in reversed(lower):
        total, value = total * y + value, value * x + each
    return total


def _pole(z: Array) -> Array:
    """Return the distance to the nearest of the poles, which are the whole numbers below one."""
    return jnp.abs(z - jnp.minimum(jnp.round(z), 0))


SCALES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("sin", "cos", "sinh", "cosh", "expm1", "exp2", "bessel_i0e", "bessel_i1e"), jnp.ones_like),
    **dict.fromkeys(("erf", "erfc"), lambda z: 1 / (1 + jnp.abs(z))),
    **dict.fromkeys(("asinh", "atan"), lambda z: 1 + jnp.abs(z)),
    **dict.fromkeys(("asin", "acos", "atanh", "erf_inv"), lambda z: 1 - jnp.abs(z)),
    **dict.fromkeys(("lgamma", "digamma"), _pole),
    **dict.fromkeys(("cbrt", "log2"), jnp.abs),
    **dict.fromkeys(("igamma", "igammac", "polygamma"), lambda *z: [jnp.abs(each) for each in z]),
    "regularized_incomplete_beta": lambda a, b, z: [jnp.abs(a), jnp.abs(b), jnp.minimum(jnp.abs(z), jnp.abs(1 - z))],
    "tan": lambda z: jnp.abs(jnp.cos(z)),
    "log1p": lambda z: 1 + z,
    "acosh": lambda z: z - 1,
    "atan2": lambda a, b: [jnp.hypot(a, b)] * 2,
    "pow": lambda a, b: [jnp.abs(a), 1 / jnp.abs(jnp.log(jnp.abs(a)))],
    **dict.fromkeys(("max", "min", "rem", "clamp"), lambda *z: [jnp.zeros_like(each) for each in z]),
    "abs": jnp.zeros_like,
}
"""Over what distance a function bends in each argument: the cube root of `f` over its third derivative, in size.
What is made of straight pieces never does: its quotient is exact wherever the points differ."""


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
    scale = SCALES[name](*operands[:k], middle, *operands[k + 1 :])
    near = float(jnp.finfo(x.dtype).eps) ** (1 / 3) * (scale[k] if isinstance(scale, list) else scale)
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
