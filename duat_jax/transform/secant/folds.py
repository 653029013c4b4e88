"""The changes of folds along axes or over windows, and of choices by order."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jaxtyping import Array

from duat_jax.transform.parameters import cumulation_of, sort_of, top_k_axis_of, window_of
from duat_jax.transform.primitives import apply
from duat_jax.transform.secant.flow import Flow, movement, part_of

Fold = Callable[[Flow, Flow], Flow]
"""A binary function, applied to values and changes."""


def tree(fold: Fold, flow: Flow, axes: Sequence[int]) -> Array:
    """Return the change of a fold over axes by a binary function, halves folded pairwise.

    Args:
        fold: the function.
        flow: the operand, whose value moves.
        axes: the axes.
    """
    remaining = [axis for axis in range(flow.change.ndim) if axis not in axes]
    order, sizes = [*axes, *remaining], [flow.change.shape[axis] for axis in remaining]
    if 0 in (flow.change.shape[axis] for axis in axes):
        return jnp.zeros(sizes, flow.change.dtype)
    change = flow.change.transpose(order).reshape(-1, *sizes)
    value = flow.value.transpose([0, *(axis + 1 for axis in order)]).reshape(2, -1, *sizes)
    while (count := len(change)) > 1:
        half = count // 2
        first, second = (Flow(value[:, at], True, change[at]) for at in (slice(half), slice(half, 2 * half)))
        folded = fold(first, second)
        change = jnp.concatenate([folded.change, change[2 * half :]])
        value = jnp.concatenate([folded.value, value[:, 2 * half :]], axis=1)
    return change[0]


def cumulated(fold: Fold, equation: core.JaxprEqn, flow: Flow) -> Array:
    """Return the change of a cumulative fold by a binary function.

    Args:
        fold: the function.
        equation: the cumulative operation.
        flow: its operand.
    """
    axis, reverse = cumulation_of(equation)

    def folded(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        result = fold(*(Flow(jnp.moveaxis(value, 1, 0), True, change) for value, change in (first, second)))
        return jnp.moveaxis(result.value, 0, 1), result.change

    entries = jnp.moveaxis(flow.value, axis + 1, 0), jnp.moveaxis(flow.change, axis, 0)
    return jnp.moveaxis(lax.associative_scan(folded, entries, reverse=reverse)[1], 0, axis)


def windows(equation: core.JaxprEqn, flow: Flow) -> Flow:
    """Return the entries of every window along a new first axis.

    Args:
        equation: the operation that reduces the windows.
        flow: its operand.
    """
    window, strides, padding, dilation, steps = window_of(equation)
    outside = jnp.inf if equation.primitive.name == "reduce_window_min" else -jnp.inf
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

    return Flow(jax.vmap(partial(cut, fill=outside))(flow.value), True, cut(flow.change, 0))


def ordered(equation: core.JaxprEqn, operands: list[Flow], results: list[Flow], jump: Any) -> list[Array | None]:
    """Return the changes of a sort's results, with the order held.

    Args:
        equation: a `sort` or `top_k`.
        operands: its operands.
        results: its results.
        jump: the share of the jumps that is added, one number.
    """
    if equation.primitive.name == "top_k":
        axis, order = top_k_axis_of(equation), results[1].value
    else:
        settings = sort_of(equation)
        axis = settings["dimension"]
        places = Flow(lax.broadcasted_iota(jnp.int32, operands[0].both[0].shape, axis))
        axes = [0 if operand.moves else None for operand in operands]
        values = [operand.value for operand in operands]
        order = jax.vmap(lambda *values: lax.sort((*values, places.value), **settings)[-1], axes)(*values)

    def change_of(operand: Flow) -> Array | None:
        if operand.change is None:
            return None
        take = jax.vmap(partial(jnp.take_along_axis, axis=axis), (None, 0))
        return take(operand.change, order).mean(0) + part_of(jump, movement(*take(operand.middle, order)))

    return [change_of(operand) for operand in operands] + [None] * (len(results) - len(operands))


def extremes(equation: core.JaxprEqn, operands: list[Flow], results: list[Flow], jump: Any) -> list[Array]:
    """Return the change of the largest or smallest value that arrives at each place, with the choice held.

    Args:
        equation: a `scatter-max` or `scatter-min`.
        operands: the array, the indices, and the updates.
        results: its result.
        jump: the share of the jumps that is added, one number.
    """
    there, indices, updates = operands

    def selected(k: int, *tangents: Array) -> Array:
        """Return the entries of two arrays that are chosen at one input."""
        points = there.both[k], updates.both[k]
        return jax.jvp(lambda a, b: apply(equation, [a, indices.both[k], b])[0], points, tangents)[1]

    flows = (there, updates)
    changes = [jnp.zeros_like(flow.both[0]) if flow.change is None else flow.change for flow in flows]
    mean = (selected(0, *changes) + selected(1, *changes)) / 2
    middles = [flow.factor for flow in flows]
    return [mean + part_of(jump, selected(0, *middles) - selected(1, *middles))]
