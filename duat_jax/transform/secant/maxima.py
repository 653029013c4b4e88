"""The change of a maximum or minimum: along axes, over windows, and of every prefix."""

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jaxtyping import Array, Float

from duat_jax.transform.parameters import cumulation_of, window_of
from duat_jax.transform.secant.changed_value import ChangedValue, movement, wide


def extremum_change(name: str, flow: ChangedValue, axes: Sequence[int]) -> Array:
    """Return the change of the largest or smallest entry along axes, by Shapley's value."""
    last = range(-len(axes), 0)
    rows = [jnp.moveaxis(array, axes, last) for array in (*flow.both, flow.change)]
    shape = rows[0].shape[: rows[0].ndim - len(axes)]
    return _extremum_change(name, *(array.reshape(*shape, -1) for array in rows))


def _extremum_change(name: str, x: Array, y: Array, change: Array) -> Array:
    """Return the change of the largest or smallest entry along the last axis."""
    dtype, sign = wide(change.dtype), -1 if name.endswith("min") else 1
    if not change.shape[-1]:
        return jnp.zeros(change.shape[:-1], dtype)
    return _largest_change(sign * x.astype(dtype), sign * y.astype(dtype), change.astype(dtype))


@partial(jnp.vectorize, signature="(n),(n),(n)->()")
def _largest_change(x: Float[Array, " n"], y: Float[Array, " n"], change: Float[Array, " n"]) -> Float[Array, ""]:
    """Return the change of the largest entry of a row, by Shapley's value."""
    # A maximum is the integral over thresholds `t` of whether some entry is above `t`. Where none is above at both
    # inputs, but `a` entries at `x` alone and `b` at `y` alone, and entries move from `y` to `x` in a random order,
    # this becomes true at the first of the `a` if it comes after all of the `b`, and false at the last of the `b` if it
    # comes before all of the `a`. So each of the `a` has the share
    # (a − 1)! b! / (a + b)!
    # of what is gained, and each of the `b` the share `(b − 1)! a! / (a + b)!` of what is lost. An entry's part is the
    # integral of its shares up to its larger value, from the smallest `t` with no entry above at both.
    low = jnp.minimum(x, y).max()
    top, x, y, order = lax.sort(
        (jnp.maximum(jnp.maximum(x, y), low), x, y, lax.iota(jnp.int32, x.size)), is_stable=False, num_keys=1
    )
    crossing = jnp.stack([x > y, x < y]) & (top > low)
    groups = lax.cumsum(crossing.astype(x.dtype), axis=1, reverse=True)
    # a! b! / (a + b)!, one entry after the other from the top.
    factors = jnp.where(crossing, groups, 0).sum(0) / jnp.maximum(groups.sum(0), 1)
    orders = lax.cumprod(jnp.where(crossing.any(0), factors, 1), reverse=True)
    heights = movement(top, jnp.concatenate([low[None], top[:-1]]))
    areas = lax.cumsum(heights * orders / jnp.maximum(groups, 1), axis=1)
    slope = jnp.where(crossing, areas, 0).sum(0) / jnp.where(x == y, 1, jnp.abs(x - y))
    # Entries that stand at the largest value below have the slope of one entry there, shared equally.
    stands = (x == y) & (x == low)
    standing = jnp.maximum(stands.astype(x.dtype).sum(), 1)
    slope = jnp.where(stands, orders[0] / (groups[:, 0].sum() + 1) / standing, slope)
    counts = jnp.isfinite(slope) & jnp.isfinite(x) & jnp.isfinite(y)
    return (jnp.where(counts, slope, 0) * change[order]).sum()


def cumulative_extremum_change(equation: core.JaxprEqn, flow: ChangedValue) -> Array:
    """Return the change of the largest or smallest entry of every prefix, one after the other."""
    axis, reverse = cumulation_of(equation)
    name = equation.primitive.name
    x, y, change = (jnp.moveaxis(array, axis, -1) for array in (*flow.both, flow.change))
    places = jnp.arange(change.shape[-1])

    # Slopes, as many as pairs of entries, are computed again in the transpose instead of being kept.
    @jax.checkpoint
    def of_prefix(end: Array) -> Array:
        inside = places >= end if reverse else places <= end
        at_x, at_y = (jnp.where(inside, array, outside(name)) for array in (x, y))
        return _extremum_change(name, at_x, at_y, change)

    return jnp.moveaxis(lax.map(of_prefix, places), 0, axis)


def outside(name: str) -> float:
    """Return a number that is never the largest or smallest of several."""
    return jnp.inf if name.endswith("min") else -jnp.inf


def windows(equation: core.JaxprEqn, flow: ChangedValue) -> ChangedValue:
    """Return the entries of every window along a new first axis."""
    window, strides, padding, dilation, steps = window_of(equation)
    out: Any = equation.outvars[0]
    shape = out.aval.shape
    paddings = [(low, high, inner - 1) for (low, high), inner in zip(padding, dilation, strict=True)]

    def cut(x: Array, fill: float) -> Array:
        padded = lax.pad(x, jnp.array(fill, x.dtype), paddings)
        slices = []
        for place in product(*map(range, window)):
            start = [i * step for i, step in zip(place, steps, strict=True)]
            limit = [s + (n - 1) * stride + 1 for s, n, stride in zip(start, shape, strides, strict=True)]
            slices.append(lax.slice(padded, start, limit, strides))
        return jnp.stack(slices)

    x, y = (cut(value, outside(equation.primitive.name)) for value in flow.both)
    return ChangedValue((x, y), True, cut(flow.change, 0))
