"""Functions of one entry: along which axes of a value the entries lie that it is computed from.

An array of which every entry depends on one entry of an earlier array, its origin, has `axes`: of each axis of the
origin with more than one entry, the axis of the array along which it lies.  Along its other axes an array may hold
several functions of one entry, as `jnp.stack([z, −z])` does.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jaxtyping import Array

from duat_jax.transform.parameters import (
    broadcast_dimensions_of,
    mixed_axes_of,
    permutation_of,
    reduces,
    reorders,
)
from duat_jax.transform.primitives import ELEMENTWISE, KEEPS_PLACE, MIXES_AXES

Axes = tuple[int, ...]


def _shape(v: Any) -> tuple[int, ...]:
    return tuple(v.aval.shape)


def own_axes(v: Any) -> Axes:
    """Return the axes of an array as a function of itself: those with more than one entry."""
    return tuple(axis for axis, size in enumerate(_shape(v)) if size != 1)


def axes_of_results(equation: core.JaxprEqn, operands: Sequence[Axes | None]) -> list[Axes | None]:
    """Return the axes of an equation's results; `None` for each that may depend on several entries of the origin."""
    name, results = equation.primitive.name, equation.outvars
    if name == "optimization_barrier":
        return list(operands)
    axes, *further = {axes for axes in operands if axes is not None}
    if further or name not in ELEMENTWISE | KEEPS_PLACE | MIXES_AXES:
        # Whatever is computed from one number alone is a function of that number.
        return [() if axes == () and not further else None] * len(results)
    if name in ELEMENTWISE:
        return [axes] * len(results)
    k = next(k for k, flag in enumerate(operands) if flag is not None)
    return [_moved(equation, axes, _shape(equation.invars[k]), _shape(v)) for v in results]


def _moved(equation: core.JaxprEqn, axes: Axes, before: tuple[int, ...], after: tuple[int, ...]) -> Axes | None:
    """Return the axes of a result of an operation that moves, adds or removes axes."""
    name = equation.primitive.name
    if name == "broadcast_in_dim":
        return tuple(broadcast_dimensions_of(equation)[axis] for axis in axes)
    if name == "transpose":
        return tuple(permutation_of(equation).index(axis) for axis in axes)
    if name in ("reshape", "squeeze", "expand_dims"):
        # Only axes with one entry may come and go.
        kept, places = ([axis for axis, size in enumerate(shape) if size != 1] for shape in (before, after))
        same = [before[axis] for axis in kept] == [after[axis] for axis in places] and not reorders(equation)
        return tuple(places[kept.index(axis)] for axis in axes) if same else None
    if name in KEEPS_PLACE:
        return axes
    mixed = mixed_axes_of(equation)
    if name == "stack":
        return tuple(axis + (axis >= mixed[0]) for axis in axes)
    if set(mixed) & set(axes):
        return None
    return tuple(axis - sum(m < axis for m in mixed) for axis in axes) if reduces(equation) else axes


def laid(x: Array, axes: Axes, shape: tuple[int, ...]) -> Array:
    """Return an origin's entries in the places of those that are computed from them."""
    if jnp.shape(x) == shape and axes == tuple(axis for axis, size in enumerate(shape) if size != 1):
        return x
    x = x.reshape([size for size in jnp.shape(x) if size != 1])
    order = sorted(range(len(axes)), key=axes.__getitem__)
    return lax.broadcast_in_dim(x.transpose(order), shape, sorted(axes))
