"""The layout of units in the array of a mark: the axis of tokens, and the units of each."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from duat_jax.marking.program import MIXED
from duat_jax.transform.keys import Site

ENCODER, DECODER = 1, 2
"""The numbers of the two streams of an encoder with a decoder."""
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
        stream: whose tokens these are, `ENCODER` or `DECODER`, whose array begins with its own first
            token; 0 where a model reads one text.
    """

    site: Site
    axis: int
    others: tuple[int, ...]
    shape: tuple[int, ...]
    stream: int = 0

    def by_token(self, array: Float[Array, "..."], real: Shaped[Array, "tokens"]) -> Float[Array, "tokens *shape"]:
        """Return a mark's values, token by token; zero at the tokens of another stream.

        Args:
            array: the values as they lie.
            real: of each token the stream, as in `Inputs`.
        """
        values = jnp.moveaxis(array, self.axis, 0).reshape(-1, *self.shape)
        if not self.stream:
            return values
        here = (real == self.stream).reshape(-1, *[1] * len(self.shape))
        return jnp.where(here, jnp.roll(values, self._tokens_before(real), 0), 0)

    def as_they_lie(self, values: Float[Array, "tokens *shape"], real: Shaped[Array, "tokens"]) -> Float[Array, "..."]:
        """Return the values of tokens as they lie in the mark's array.

        Args:
            values: the values, token by token.
            real: of each token the stream, as in `Inputs`.
        """
        if self.stream:
            values = jnp.roll(values, -self._tokens_before(real), 0)
        return jnp.moveaxis(values.reshape(-1, *self.others), 0, self.axis)

    def _tokens_before(self, real: Shaped[Array, "tokens"]) -> Int[Array, ""]:
        """Return the number of tokens of the streams before this one."""
        return ((real > 0) & (real < self.stream)).sum()


def units_at(site: Site, shape: tuple[int, ...], axis: int, stream: int) -> UnitLayout:
    """Return how units lie at a mark that `duat.auto` placed."""
    other_sizes = (*shape[:axis], *shape[axis + 1 :])
    in_heads = site.key.name == MIXED and axis < len(shape) - 1
    return UnitLayout(
        site,
        axis,
        other_sizes,
        (math.prod(other_sizes[:-1]), other_sizes[-1]) if in_heads else (math.prod(other_sizes),),
        stream,
    )
