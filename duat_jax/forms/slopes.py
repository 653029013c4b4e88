"""The slopes of terms in the collapse: `s = (σ(z) − σ(0)) / z`, and `σ'(0)` where `z` is zero.

Where `σ(0)` isn't finite, as of a logarithm, the term is `(σ(z) / z) z` and carries no constant.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.transform import marks
from duat_jax.transform.activations import activations_of
from duat_jax.transform.interpret import Seen
from duat_jax.transform.own_derivatives import by_own_operations
from duat_jax.transform.recording import Recording
from duat_jax.transform.secant.elementwise_secants import slope


def slopes_of(recording: Recording) -> tuple[Seen, Seen]:
    """Return `σ(0)`, or zero where that isn't finite, and the slope of every term, by its activation."""
    program, seen = recording.program, recording.seen
    z = {site: seen[site] for site in program.of_kind(marks.PRE_ACTIVATION)}
    if not z:
        return {}, {}
    zeros, ones = jax.tree.map(jnp.zeros_like, z), jax.tree.map(jnp.ones_like, z)
    # A rule of differentiation that the user gave is a claim.
    activations = by_own_operations(partial(activations_of, recording))
    at_zero = {site: jnp.where(jnp.isfinite(constant), constant, 0) for site, constant in activations(zeros).items()}
    by_activation = {site._replace(kind=marks.ACTIVATION): site for site in z}
    points, origin = ({site: tree[by_activation[site]] for site in at_zero} for tree in (z, zeros))

    def activate(points: Seen) -> Seen:
        return activations({by_activation[site]: point for site, point in points.items()})

    def derivative(points: Seen) -> Seen:
        return jax.jvp(activations, ({by_activation[site]: point for site, point in points.items()},), (ones,))[1]

    values = {site: seen[site] for site in at_zero}
    slopes = slope(derivative, points, origin, values, at_zero)
    return at_zero, _checked(activate, points, slopes, values, at_zero)


def _checked(activate: Callable[[Seen], Seen], points: Seen, slopes: Seen, values: Seen, at_zero: Seen) -> Seen:
    """Return slopes; where the difference of values is lost to rounding, those that central quotients confirm."""
    # There the derivative may be lost, too: that of `where(z == 0, 1, expm1(z) / z)` is a difference of two numbers as
    # large as `1 / z`. A function that isn't smooth, as far as its values tell, keeps its slope.

    def at(place: float) -> Seen:
        return activate(jax.tree.map(lambda z: z / 2 + jnp.asarray(place * _step(z), z.dtype), points))

    def chosen(z: Array, slope: Array, value: Array, zero: Array, *around: Array) -> Array:
        h, eps, (below, left, middle, right, above) = _step(z), float(jnp.finfo(z.dtype).eps), around
        wide, narrow = (above - below) / (2 * h), (right - left) / h
        bend, narrow_bend = (above - 2 * middle + below) / h, 2 * (right - 2 * middle + left) / h
        off = 16 * eps * jnp.abs(jnp.stack(around)).max(0) / h + 8 * h**2 * jnp.abs(narrow)
        smooth = (jnp.abs(wide - narrow) <= off) & (jnp.abs(narrow_bend) <= 0.75 * jnp.abs(bend) + off)
        lost = jnp.abs(narrow * z - (value - zero)) <= 8 * eps * jnp.maximum(jnp.abs(value), jnp.abs(zero))
        return jnp.where(smooth & lost & ~(jnp.abs(slope - narrow) <= 2 * off), narrow, slope)

    return jax.tree.map(chosen, points, slopes, values, at_zero, *map(at, (-1.0, -0.5, 0.0, 0.5, 1.0)))


def _step(z: Array) -> float:
    """Return the power of two at which a central quotient is off by its rounding as by the third derivative."""
    return 2.0 ** round(math.log2(jnp.finfo(z.dtype).eps) / 3)
