"""The layout of units in the array of a mark: the axis of tokens, and the units of each."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.marking.program import MIXED
from duat_jax.transform.keys import Site

NO_LAYERS = (
    "a model that PyTorch's code computes has no layers of this package, which this question is about: explain,"
    " contrast or edit it, or attribute its tokens"
)
"""The refusal of a question about the parts of layers."""


class UnitLayout(NamedTuple):
    """A mark with units of every token, and how they lie in its array.

    Args:
        site: the mark.
        axis: the axis of tokens.
        others: the sizes of the other axes, in their order.
        shape: of the units of one token: `[neurons]`, `[heads, head_features]`, or of a stream `[features]`.
    """

    site: Site
    axis: int
    others: tuple[int, ...]
    shape: tuple[int, ...]

    def by_token(self, array: Float[Array, "..."]) -> Float[Array, "tokens *shape"]:
        """Return a mark's values, token by token.

        Args:
            array: the values as they lie.
        """
        return jnp.moveaxis(array, self.axis, 0).reshape(-1, *self.shape)

    def as_they_lie(self, values: Float[Array, "tokens *shape"]) -> Float[Array, "..."]:
        """Return the values of tokens as they lie in the mark's array.

        Args:
            values: the values, token by token.
        """
        return jnp.moveaxis(values.reshape(-1, *self.others), 0, self.axis)


def units_at(site: Site, shape: tuple[int, ...], axis: int) -> UnitLayout:
    """Return how units lie at a mark that `duat.auto` placed."""
    other_sizes = (*shape[:axis], *shape[axis + 1 :])
    in_heads = site.key.name == MIXED and axis < len(shape) - 1
    return UnitLayout(
        site,
        axis,
        other_sizes,
        (math.prod(other_sizes[:-1]), other_sizes[-1]) if in_heads else (math.prod(other_sizes),),
    )
