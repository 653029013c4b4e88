"""The change of a value that is, entry by entry, a function of another one."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array

from duat_jax.transform.entrywise import Axes, laid
from duat_jax.transform.secant.changed_value import ChangedValue, finite
from duat_jax.transform.secant.rules import changes


def univariate_change(
    equation: core.JaxprEqn,
    operands: list[ChangedValue],
    result: ChangedValue,
    origin: ChangedValue,
    axes: Axes,
    steps: Sequence[int],
) -> Array:
    """Return the change of a result that is a function of a single value, entry by entry."""
    # Where a piecewise constant operand moves, or the points are far from each other, it is that function's own secant;
    # where they are near that would lose digits, and the operands' changes are carried on.
    standing = [ChangedValue(operand.both[0]) if k in steps else operand for k, operand in enumerate(operands)]
    carried: Any = changes(equation, standing, [result], None)[0]
    return own_secant(result, origin, axes, carried, [operands[k] for k in steps], _summands(equation, standing))


def _summands(equation: core.JaxprEqn, operands: Sequence[ChangedValue]) -> Any:
    """Return the size of the two summands of a product's or quotient's difference; zero of any other operation."""
    if equation.primitive.name not in ("mul", "div"):
        return 0
    a, b = operands
    b = b if equation.primitive.name == "mul" else ChangedValue(1 / b.value, b.moves)
    return jnp.abs(a.moved * b.middle) + jnp.abs(a.middle * b.moved)


def own_secant(
    result: ChangedValue,
    origin: ChangedValue,
    axes: Axes,
    carried: Array,
    steps: Sequence[ChangedValue],
    summands: Any = 0,
) -> Array:
    """Return the change of a function of one value: by its own secant where a step moves, else carried on."""
    shape = carried.shape
    middle, moved, change = (laid(x, axes, shape) for x in (origin.middle, origin.moved, origin.change))
    own = jnp.zeros(shape, bool)
    for step in steps:
        own |= step.both[0] != step.both[1]
    own |= (jnp.abs(moved) > jnp.abs(middle)) & (2 * summands > jnp.maximum(*map(jnp.abs, result.both)))
    slope = finite(result.moved / jnp.where(own, moved, 1)).astype(carried.dtype)
    return jnp.where(own, slope * change.astype(carried.dtype), carried)
