"""The changes of choices by order: sorted entries, and the largest that arrive at each place."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jaxtyping import Array

from duat_jax.transform.parameters import scatter_of, sort_of, top_k_axis_of
from duat_jax.transform.primitives import apply
from duat_jax.transform.secant.changed_value import ChangedValue, movement, part_of, wide


def ordered(
    equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any
) -> list[Array | None]:
    """Return the changes of a sort's results, with the order held."""
    # Entries that are equal at one input are put in their order at the other, and those that are equal at both have
    # their mean: so a permutation of the keys permutes their parts.
    if equation.primitive.name == "top_k":
        axis, keys, sign = top_k_axis_of(equation), operands[:1], -1
    else:
        settings, sign = sort_of(equation), 1
        axis, keys = settings["dimension"], operands[: settings["num_keys"]]
    places = lax.broadcasted_iota(jnp.int32, operands[0].both[0].shape, axis)

    def keys_at(side: int) -> list[Array]:
        return [sign * key.both[side] for key in keys]

    def order_of(operand: ChangedValue, side: int) -> Array:
        """Return which entries of an operand come first at one input."""
        if operand in keys:
            by = (*keys_at(side), *keys_at(1 - side))
            return lax.sort((*by, places), dimension=axis, num_keys=len(by))[-1]
        order = lax.sort((*(each.both[side] for each in operands), places), **settings)[-1]
        here, there = (
            [jnp.take_along_axis(array, order, axis) for array in (*keys_at(k), operand.both[k])]
            for k in (side, 1 - side)
        )
        return lax.sort((_runs(here, axis), *there, order), dimension=axis, num_keys=1 + len(there))[-1]

    def change_of(operand: ChangedValue, result: ChangedValue) -> Array | None:
        if operand.change is None:
            return None
        changes, middles = [], []
        for side in (0, 1):
            take = partial(jnp.take_along_axis, indices=order_of(operand, side), axis=axis)
            run = _runs([take(array) for array in (*keys_at(0), *keys_at(1), *operand.both)], axis)
            changes.append(_mean_of_runs(take(operand.change), run, axis))
            middles.append(take(operand.middle).astype(changes[0].dtype))
        change = (changes[0] + changes[1]) / 2 + part_of(jump, movement(*middles))
        return lax.slice_in_dim(change, 0, result.both[0].shape[axis], axis=axis)

    changes = [change_of(*pair) for pair in zip(operands, results, strict=False)]
    return changes + [None] * (len(results) - len(operands))


def _runs(arrays: Sequence[Array], axis: int) -> Array:
    """Return the number of the run of entries to which each belongs, entries of a run being equal in all arrays."""
    differs = [array != jnp.roll(array, 1, axis) for array in arrays]
    first = lax.broadcasted_iota(jnp.int32, arrays[0].shape, axis) == 0
    return lax.cumsum((jnp.stack(differs).any(0) & ~first).astype(jnp.int32), axis % first.ndim)


def _mean_of_runs(entries: Array, run: Array, axis: int) -> Array:
    """Return the mean of every run in the place of each of its entries."""
    entries = entries.astype(wide(entries.dtype))

    @partial(jnp.vectorize, signature="(n),(n)->(n)")
    def of_row(entries: Array, run: Array) -> Array:
        total, count = (jax.ops.segment_sum(x, run, len(run)) for x in (entries, jnp.ones_like(entries)))
        return (total / jnp.maximum(count, 1))[run]

    return jnp.moveaxis(of_row(*(jnp.moveaxis(array, axis, -1) for array in (entries, run))), -1, axis)


def extremes(
    equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any
) -> list[Array]:
    """Return the change of the largest or smallest value that arrives at each place, with the choice held."""
    there, indices, updates = operands
    places = [_clipped(equation, there.both[0], where, updates.both[0]) for where in indices.both]

    def selected(k: int, *tangents: Array) -> Array:
        """Return the entries of two arrays that are chosen at one input."""
        points = there.both[k], updates.both[k]
        return jax.jvp(lambda a, b: apply(equation, [a, places[k], b])[0], points, tangents)[1]

    flows = (there, updates)
    changes = [jnp.zeros_like(flow.both[0]) if flow.change is None else flow.change for flow in flows]
    mean = (selected(0, *changes) + selected(1, *changes)) / 2
    middles = [flow.factor for flow in flows]
    return [mean + part_of(jump, selected(0, *middles) - selected(1, *middles))]


def _clipped(equation: core.JaxprEqn, array: Array, indices: Array, updates: Array) -> Array:
    """Return the indices of a scatter that moves updates into the array, as JAX's derivative doesn't."""
    parameters = scatter_of(equation)
    if parameters["mode"] != lax.GatherScatterMode.CLIP:
        return indices
    numbers, shape = parameters["dimension_numbers"], array.shape
    windows = [1] * len(shape)
    outside = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    kept = [axis for axis in range(len(shape)) if axis not in outside]
    for axis, of_updates in zip(kept, numbers.update_window_dims, strict=True):
        windows[axis] = updates.shape[of_updates]
    last = [shape[axis] - windows[axis] for axis in numbers.scatter_dims_to_operand_dims]
    return jnp.clip(indices, 0, jnp.array(last, indices.dtype))
