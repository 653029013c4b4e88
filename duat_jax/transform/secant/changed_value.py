"""A value at two inputs with its change, and its contributions."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

# Hundreds of these are in one program: written in `lax`, none is a function of its own, which would be traced, lowered
# and inlined apart.


def movement(x: Array, y: Array) -> Array:
    """Return `x − y`, with zero for equal infinities."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    return lax.select(x == y, lax.full_like(x, 0), x - y)


def part(multiplier: Array, change: Array) -> Array:
    """Return a multiplier times a change, with zero for an infinite change that isn't used."""
    product = multiplier * change
    return lax.select((multiplier == 0) & (jnp.abs(change) == jnp.inf), lax.full_like(product, 0), product)


def finite(x: Array) -> Array:
    """Replace infinities and NaN by zeros."""
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.where(jnp.isfinite(x), x, 0)
    return lax.select(lax.is_finite(x), x, lax.full_like(x, 0))


@jax.tree_util.register_pytree_node_class
class ChangedValue:
    """A value at both inputs, and its change.

    Args:
        value: the value; if it moves, both values along a new first axis, or a pair of them.
        moves: whether it differs between the inputs.
        change: linear in the argument's change; `None` where it isn't needed.
        middle: the mean of both values; computed from them if absent.
    """

    def __init__(self, value: Any, moves: bool = False, change: Any = None, middle: Any = None) -> None:
        self._value, self.moves, self.change, self._middle = value, moves, change, middle

    @property
    def apart(self) -> bool:
        """Whether both values are arrays of their own, as those of large arguments are, which a stack would copy."""
        return isinstance(self._value, tuple)

    @property
    def value(self) -> Any:
        """The value; if it moves, both values along a new first axis."""
        return jnp.stack(self._value) if self.apart else self._value

    @property
    def dtype(self) -> Any:
        """The dtype of the value."""
        return jnp.result_type(self._value[0] if self.apart else self._value)

    @property
    def both(self) -> tuple[Any, Any]:
        """The value at the first input and at the second."""
        first, second = self._value if self.moves else (self._value, self._value)
        return first, second

    @property
    def middle(self) -> Any:
        """The mean of both values."""
        if self._middle is not None:
            return self._middle
        first, second = self.both
        if not self.moves:
            return first
        total = jnp.asarray(first + second)  # which may leave the dtype's range, as halves of the smallest numbers do
        return lax.select(jnp.abs(total) == jnp.inf, first / 2 + second / 2, total / 2)

    @property
    def factor(self) -> Any:
        """The mean of both values as a factor of a change, with zeros in the place of infinities and NaN."""
        return finite(self.middle)

    @property
    def moved(self) -> Any:
        """The first value minus the second."""
        return movement(*self.both)

    def tree_flatten(self) -> tuple[tuple[Any, Any], bool]:
        """Return value and change, for JAX."""
        return (self._value, self.change), self.moves

    @classmethod
    def tree_unflatten(cls, moves: bool, children: tuple[Any, Any]) -> "ChangedValue":
        """Rebuild the flow, for JAX."""
        return cls(children[0], moves, children[1])


def wide(dtype: Any) -> jnp.dtype:
    """Return the dtype in which changes are summed: at least that of single precision."""
    # In half precision a sum of many equal numbers stands still, as 256 + 1 does in bfloat16.
    return jnp.dtype(jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype)


def widened(flow: ChangedValue) -> ChangedValue:
    """Return a value with its change in at least single precision, so that all its uses are summed there."""
    if flow.change is None or flow.change.dtype == wide(flow.change.dtype):
        return flow
    return ChangedValue(flow._value, flow.moves, flow.change.astype(wide(flow.change.dtype)), flow._middle)


def narrowed(flow: ChangedValue) -> ChangedValue:
    """Return a value with its change in the value's own dtype, as an equation takes it."""
    if flow.change is None or flow.change.dtype == flow.dtype:
        return flow
    return ChangedValue(flow._value, flow.moves, flow.change.astype(flow.dtype), flow._middle)


def unchanged(value: Array) -> Array:
    """Return the change of a value that doesn't move: zeros."""
    return jnp.zeros(value.shape, wide(value.dtype))


def part_of(jump: Array, moved: Array) -> Array:
    """Return the share of a jump that is added to a change."""
    # An infinity that masks is no part: the effect of the mask is reported where scores are normalised.
    return jump.astype(moved.dtype) * finite(moved)


def with_jumps_from_infinity(
    change: Callable[[Sequence[ChangedValue]], Array],
    operands: Sequence[ChangedValue],
    result: ChangedValue,
    jump: Array | None,
    axes: tuple[int, ...] = (),
) -> Array:
    """Return the change of a result, with a jump where an operand is infinite at one input alone, as behind a mask."""
    # No slope reaches from infinity: the jump is how far the result moves beyond its change.
    if jump is None:
        return change(operands)
    flowing = [operand for operand in operands if operand.change is not None]
    masked = reduce(or_, (jnp.logical_xor(*map(jnp.isinf, operand.both)) for operand in flowing)).any(axes)
    moved = change([o if o.change is None else ChangedValue(o.both, o.moves, finite(o.moved)) for o in operands])
    return change(operands) + part_of(jump, jnp.where(masked, result.moved - moved, 0))
