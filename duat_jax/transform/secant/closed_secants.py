"""Secants `(f(x) − f(y)) / (x − y)` without a difference of nearly equal numbers."""

from collections.abc import Callable
from functools import partial
from math import log, pi

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array


def _over(f: Callable[[Array], Array], z: Array) -> Array:
    """Return `f(z) / z` for a function with `f(0) = 0` and `f'(0) = 1`."""
    return jnp.where(z == 0, 1, f(z) / jnp.where(z == 0, 1, z))


def _decay(t: Array) -> Array:
    """Return `(1 − exp(−t)) / t` for `t ≥ 0`."""
    return _over(lambda t: -jnp.expm1(-t), t)


def _distance(x: Array, y: Array) -> Array:
    return jnp.where(x == y, 0, jnp.abs(x - y))


def _exp(x: Array, y: Array) -> Array:
    # The logarithmic mean of both values, which is zero for two points at minus infinity.
    return jnp.exp(jnp.maximum(x, y)) * _decay(_distance(x, y))


def _exp2(x: Array, y: Array) -> Array:
    return log(2) * jnp.exp2(jnp.maximum(x, y)) * _decay(log(2) * _distance(x, y))


def _log(x: Array, y: Array, f: Callable[[Array], Array] = jnp.log, shift: int = 0) -> Array:
    """Return the secant of `f(z) = log(z + shift)`."""
    low, distance = jnp.minimum(x, y), _distance(x, y)
    unit = low + shift
    far = distance > unit
    apart = (f(jnp.maximum(x, y)) - f(low)) / jnp.where(far, distance, 1)
    return jnp.where(far, apart, _over(jnp.log1p, jnp.where(far, 0, distance / unit)) / unit)


_log1p = partial(_log, f=jnp.log1p, shift=1)


def _logistic(x: Array, y: Array) -> Array:
    # Of both points the larger and the smaller of σ(z) and σ(−z) are 1 / (1 + u) and u / (1 + u).
    u, v = jnp.exp(-jnp.abs(x)), jnp.exp(-jnp.abs(y))
    crossed = jnp.where((x > 0) == (y > 0), u + v, 1 + u * v)
    return _over(jnp.tanh, (x - y) / 2) / 2 * crossed / ((1 + u) * (1 + v))


def _inverse(total: Array) -> Array:
    # At two zeros any slope is exact, and the derivative isn't finite.
    return 1 / jnp.where(total == 0, jnp.inf, total)


def _cbrt(x: Array, y: Array) -> Array:
    a, b = lax.cbrt(x), lax.cbrt(y)
    return _inverse(a * a + a * b + b * b)


def _rsqrt(x: Array, y: Array) -> Array:
    a, b = lax.rsqrt(x), lax.rsqrt(y)
    return -a * b / (x * a + y * b)


def _abs(x: Array, y: Array) -> Array:
    total = jnp.abs(x) + jnp.abs(y)
    return (x + y) / jnp.where(total == 0, 1, total)


def _rounded(a: Array, b: Array) -> tuple[Array, Array]:
    """Return `a + b` as it is rounded, and the rest: their sum is exact (Knuth's two-sum)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _sin_of(angle: tuple[Array, Array]) -> Array:
    """Return the sine of the sum of two numbers."""
    a, b = angle
    return jnp.sin(a) * jnp.cos(b) + jnp.cos(a) * jnp.sin(b)


def _cos_of(angle: tuple[Array, Array]) -> Array:
    """Return the cosine of the sum of two numbers."""
    a, b = angle
    return jnp.cos(a) * jnp.cos(b) - jnp.sin(a) * jnp.sin(b)


def _sin_over(x: Array, y: Array) -> Array:
    """Return `sin(x − y) / (x − y)`."""
    # Rounded alone, neither angle is precise near the zeros of its sine or cosine.
    angle = _rounded(x, -y)
    return jnp.where(angle[0] == 0, 1, _sin_of(angle) / jnp.where(angle[0] == 0, 1, angle[0]))


def _sin(x: Array, y: Array) -> Array:
    return _cos_of(_rounded(x / 2, y / 2)) * _sin_over(x / 2, y / 2)


def _cos(x: Array, y: Array) -> Array:
    return -_sin_of(_rounded(x / 2, y / 2)) * _sin_over(x / 2, y / 2)


def _tan(x: Array, y: Array) -> Array:
    return _sin_over(x, y) / (jnp.cos(x) * jnp.cos(y))


def _middle(x: Array, y: Array) -> tuple[Array, Array]:
    return x / 2 + y / 2, (x - y) / 2


def _sinh(x: Array, y: Array) -> Array:
    middle, half = _middle(x, y)
    return jnp.cosh(middle) * _over(jnp.sinh, half)


def _cosh(x: Array, y: Array) -> Array:
    middle, half = _middle(x, y)
    return jnp.sinh(middle) * _over(jnp.sinh, half)


def _atan(x: Array, y: Array) -> Array:
    unit = jnp.maximum(1, jnp.maximum(jnp.abs(x), jnp.abs(y)))
    cosine = 1 / unit + x / unit * y
    return jnp.where(x == y, 1 / unit / cosine, jnp.arctan2((x - y) / unit, cosine) / jnp.where(x == y, 1, x - y))


def _asin(x: Array, y: Array) -> Array:
    a, b = (jnp.sqrt((1 - z) * (1 + z)) for z in (x, y))
    sides, same_sign = x * b + y * a, (x > 0) == (y > 0)
    sine = jnp.where(same_sign, (x - y) * (x + y) / jnp.where(sides == 0, 1, sides), x * b - y * a)
    return jnp.where(x == y, _inverse(a), jnp.arctan2(sine, a * b + x * y) / jnp.where(x == y, 1, x - y))


def _asinh(x: Array, y: Array) -> Array:
    a, b = jnp.abs(x), jnp.abs(y)
    of_a, of_b = jnp.hypot(1, a), jnp.hypot(1, b)
    # asinh(z) = log1p(z + (√(1 + z²) − 1))
    same_sign_slope = _log1p(a + a * (a / (1 + of_a)), b + b * (b / (1 + of_b))) * (1 + (a + b) / (of_a + of_b))
    return jnp.where(x * jnp.sign(y) < 0, (jnp.arcsinh(a) + jnp.arcsinh(b)) / (a + b), same_sign_slope)


def _acosh(x: Array, y: Array) -> Array:
    # acosh(z) = 2 asinh(√((z − 1) / 2))
    a, b = (jnp.sqrt((z - 1) / 2) for z in (x, y))
    return _asinh(a, b) * _inverse(a + b)


CLOSED: dict[str, Callable[[Array, Array], Array]] = {
    "exp": _exp,
    "expm1": _exp,
    "exp2": _exp2,
    "log": _log,
    "log1p": _log1p,
    "log2": lambda x, y: _log(x, y) / log(2),
    "logistic": _logistic,
    "tanh": lambda x, y: 4 * _logistic(2 * x, 2 * y),
    "sqrt": lambda x, y: _inverse(jnp.sqrt(x) + jnp.sqrt(y)),
    "rsqrt": _rsqrt,
    "cbrt": _cbrt,
    "square": lambda x, y: x + y,
    "one_minus_square": lambda x, y: -x - y,
    "abs": _abs,
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "sinh": _sinh,
    "cosh": _cosh,
    "asin": _asin,
    "acos": lambda x, y: -_asin(x, y),
    "atan": _atan,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": lambda x, y: (_log1p(x, y) + _log1p(-x, -y)) / 2,
}
"""Secants of functions of one argument, from both points."""


def integer_power(n: int, x: Array, y: Array) -> Array:
    """Return the secant of `z ↦ zⁿ`."""
    if n < 0:
        return -integer_power(-n, x, y) * lax.integer_pow(x, n) * lax.integer_pow(y, n)
    if n < 2:
        return jnp.full_like(x, n)
    if n % 2 == 0:  # x²ᵏ − y²ᵏ has the factor x + y, which may be small
        return (x + y) * integer_power(n // 2, x * x, y * y)
    return lax.integer_pow(x, n - 1) + y * integer_power(n - 1, x, y)


def of_angle(k: int, fixed: Array, x: Array, y: Array, otherwise: Array) -> Array:
    """Return the secant of `atan2` in one argument: the angle at the origin over the distance."""
    unit = jnp.maximum(jnp.abs(fixed), jnp.maximum(jnp.abs(x), jnp.abs(y)))
    unit = jnp.where(unit == 0, 1, unit)
    cosine, sine = x / unit * (y / unit) + (fixed / unit) ** 2, (1 - 2 * k) * fixed / unit
    apart = (x - y) / unit
    angle = jnp.arctan2(sine * apart, cosine)
    slope = jnp.where(apart == 0, sine / jnp.where(cosine == 0, 1, cosine), angle / jnp.where(apart == 0, 1, apart))
    cut = (k == 0) & (fixed < 0) & (jnp.signbit(x) != jnp.signbit(y))
    return jnp.where((cosine > 0) & (jnp.abs(angle) < pi / 2) & ~cut, slope / unit, otherwise)


def of_power(k: int, fixed: Array, x: Array, y: Array, otherwise: Array) -> Array:
    """Return the secant of `pow` in one argument: that of `exp(exponent · log(base))`."""
    if k == 0:
        positive = jnp.minimum(x, y) > 0
        a, b = (jnp.where(positive, z, 1) for z in (x, y))
        inner = _log(a, b)
        largest, factor = jnp.maximum(lax.pow(a, fixed), lax.pow(b, fixed)), fixed * inner
    else:
        positive = fixed > 0
        base = jnp.where(positive, fixed, 1)
        a, b = x, y
        largest, factor = jnp.maximum(lax.pow(base, a), lax.pow(base, b)), jnp.log(base)
    return jnp.where(positive, factor * largest * _decay(jnp.abs(factor) * _distance(a, b)), otherwise)
