"""A value at two inputs with its change, and what of both is a part."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def movement(x: Array, y: Array) -> Array:
    """Return `x − y`, which is zero of equal infinities.

    Args:
        x: the value at the first input.
        y: that at the second.
    """
    return jnp.where(jnp.isinf(x) & (x == y), 0, x - y)


def part(multiplier: Array, change: Array) -> Array:
    """Return a multiplier times a change; of an infinite change that nothing reads, as a mask's, zero.

    Args:
        multiplier: by what the change is carried on.
        change: the change.
    """
    return jnp.where((multiplier == 0) & jnp.isinf(change), 0, multiplier * change)


def without_infinities(x: Array) -> Array:
    """Return an array with zeros in the place of infinities.

    Args:
        x: any array.
    """
    return jnp.where(jnp.isinf(x), 0, x)


@jax.tree_util.register_pytree_node_class
class Flow:
    """A value at both inputs, and its change.

    Args:
        value: the value; of one that moves both, along a new first axis.
        moves: whether it does.
        change: linear in the argument's change; `None` where it isn't asked for.
    """

    def __init__(self, value: Any, moves: bool = False, change: Any = None) -> None:
        self.value, self.moves, self.change = value, moves, change

    @property
    def both(self) -> tuple[Any, Any]:
        """The value at the first input and at the second."""
        return (self.value[0], self.value[1]) if self.moves else (self.value, self.value)

    @property
    def middle(self) -> Any:
        """The mean of both."""
        return (self.value[0] + self.value[1]) / 2 if self.moves else self.value

    @property
    def factor(self) -> Any:
        """The mean of both as the other factor of a change; of a product with infinity nothing is carried."""
        return without_infinities(self.middle)

    @property
    def moved(self) -> Any:
        """The first minus the second."""
        return movement(*self.both)

    def tree_flatten(self) -> tuple[tuple[Any, Any], bool]:
        """Return value and change, for JAX."""
        return (self.value, self.change), self.moves

    @classmethod
    def tree_unflatten(cls, moves: bool, children: tuple[Any, Any]) -> "Flow":
        """Return it again, for JAX.

        Args:
            moves: whether it moves.
            children: value and change.
        """
        return cls(children[0], moves, children[1])


def part_of(jump: Array, moved: Array) -> Array:
    """Return as much of what jumped as is added to a change.

    Args:
        jump: how much, one number.
        moved: what jumped.
    """
    # What masks out, as minus infinity does, is no part: what it takes or leaves is named where it is normalised.
    return jump.astype(moved.dtype) * without_infinities(moved)
