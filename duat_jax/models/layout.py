"""The layout of units in the array of a mark: the axis of tokens, and the units of each."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from duat_jax.marking.patterns import HeldFactor
from duat_jax.marking.program import MIXED
from duat_jax.transform.keys import Site

ENCODER, DECODER = 1, 2
"""The numbers of the two streams of an encoder with a decoder, or of an image and its text."""
NO_LAYERS = (
    "a model that PyTorch's code computes has no layers of this package, which this question is about: explain,"
    " contrast, graph or edit it, or attribute its tokens"
)
"""The refusal of a question about the parts of layers."""


class PatternLayout(NamedTuple):
    """The mark that holds the pattern by which heads mix, and how it lies.

    Args:
        site: the mark.
        axes: the axis of queries, that of keys, and those of heads in their order.
        queries: whose tokens the queries are, as in `UnitLayout`.
        keys: whose tokens the keys are.
    """

    site: Site
    axes: tuple[int, ...]
    queries: int
    keys: int

    def by_token(self, array: Float[Array, "..."], real: Shaped[Array, "tokens"]) -> Float[Array, "heads tokens keys"]:
        """Return a pattern, or the parts of its entries, head by head; zero at the tokens of other streams.

        Args:
            array: the entries as they lie.
            real: of each token the stream, as in `Inputs`.
        """
        queries, keys, *_ = (array.shape[axis] for axis in self.axes)
        entries = jnp.transpose(array, self.axes).reshape(queries, keys, -1)
        by_query = _in_their_places(entries, self.queries, real)
        return jnp.moveaxis(_in_their_places(jnp.moveaxis(by_query, 1, 0), self.keys, real), (0, 1, 2), (2, 1, 0))


def layer_label(layer: int | None, encoder_layers: int, *, of_image: bool = False) -> str:
    """Return the label of a layer, and whose it is where a decoder's layers are counted on from its encoder's.

    Example:
        >>> layer_label(2, 0), layer_label(2, 3), layer_label(3, 3), layer_label(3, 3, of_image=True)
        ('layer 2', 'encoder layer 2', 'decoder layer 3', 'text layer 3')
    """
    if layer is None:
        return "embedding"
    first, second = ("image", "text") if of_image else ("encoder", "decoder")
    return f"{first if layer < encoder_layers else second} layer {layer}" if encoder_layers else f"layer {layer}"


class UnitLayout(NamedTuple):
    """A mark with units of every token, and how they lie in its array.

    Args:
        site: the mark.
        axis: the axis of tokens.
        others: the sizes of the other axes, in their order.
        shape: of the units of one token: `[neurons]`, `[heads, head_features]`, or of a stream `[features]`.
        stream: whose tokens these are, `ENCODER` or `DECODER`, whose array begins with its own first
            token; 0 where a model reads one text.
        pattern: of heads the pattern by which they mix, where one is known.
        span: the first of these tokens among all, and the one after the last, or `None` for the end; absent where
            that depends on the text.
    """

    site: Site
    axis: int
    others: tuple[int, ...]
    shape: tuple[int, ...]
    stream: int = 0
    pattern: PatternLayout | None = None
    span: tuple[int, int | None] | None = None

    def tokens(self, real: Shaped[np.ndarray, "tokens"]) -> Int[np.ndarray, "_"]:
        """Return the tokens that have these units.

        Args:
            real: of each token the stream, as in `Inputs`.
        """
        places = np.arange(len(real))
        if self.span is not None:
            return places[slice(*self.span)]
        return places[real == self.stream] if self.stream else places

    def by_token(self, array: Float[Array, "..."], real: Shaped[Array, "tokens"]) -> Float[Array, "tokens *shape"]:
        """Return a mark's values, token by token; zero at the tokens of another stream.

        Args:
            array: the values as they lie.
            real: of each token the stream, as in `Inputs`.
        """
        values = jnp.moveaxis(array, self.axis, 0).reshape(-1, *self.shape)
        if self.span is None:
            return _in_their_places(values, self.stream, real)
        after = len(real) - self.span[0] - len(values)
        return jnp.pad(values, ((self.span[0], after), *[(0, 0)] * len(self.shape)))

    def as_they_lie(self, values: Float[Array, "tokens *shape"], real: Shaped[Array, "tokens"]) -> Float[Array, "..."]:
        """Return the values of tokens as they lie in the mark's array.

        Args:
            values: the values, token by token.
            real: of each token the stream, as in `Inputs`.
        """
        if self.span is not None:
            values = values[slice(*self.span)]
        elif self.stream:
            values = jnp.roll(values, -_tokens_before(self.stream, real), 0)
        return jnp.moveaxis(values.reshape(-1, *self.others), 0, self.axis)


def _tokens_before(stream: int, real: Shaped[Array, "tokens"]) -> Int[Array, ""]:
    """Return the number of tokens of the streams before one."""
    return ((real > 0) & (real < stream)).sum()


def _in_their_places(
    values: Float[Array, "tokens *units"], stream: int, real: Shaped[Array, "tokens"]
) -> Float[Array, "tokens *units"]:
    """Return the rows of a stream's tokens, the first of which come first, in their places, and zeros in the others."""
    if not stream:
        return values
    here = (real == stream).reshape(-1, *[1] * (values.ndim - 1))
    return jnp.where(here, jnp.roll(values, _tokens_before(stream, real), 0), 0)


def units_at(
    site: Site, shape: tuple[int, ...], axis: int, stream: int, span: tuple[int, int | None] | None = None
) -> UnitLayout:
    """Return how units lie at a mark that `duat.auto` placed."""
    other_sizes = (*shape[:axis], *shape[axis + 1 :])
    in_heads = site.key.name == MIXED and axis < len(shape) - 1
    return UnitLayout(
        site,
        axis,
        other_sizes,
        (math.prod(other_sizes[:-1]), other_sizes[-1]) if in_heads else (math.prod(other_sizes),),
        stream,
        span=span,
    )


def pattern_at(
    units: UnitLayout, factor: HeldFactor, sizes: tuple[int, ...], tokens: Mapping[int, int]
) -> PatternLayout | None:
    """Return how the pattern lies by which heads mix, if all its axes are known: those of tokens, and heads."""
    queries, (*heads, features) = factor.kept[units.axis], factor.kept[: units.axis] + factor.kept[units.axis + 1 :]
    of_heads = tuple(axis for axis in heads if axis is not None)
    if features is not None or math.prod(sizes[axis] for axis in of_heads) != units.shape[0]:
        return None
    if queries is None or queries not in tokens or len(factor.summed) != 1 or factor.summed[0] not in tokens:
        return None
    (keys,) = factor.summed
    return PatternLayout(factor.site, (queries, keys, *of_heads), tokens[queries], tokens[keys])
