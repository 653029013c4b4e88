"""Moves of attention heads: what they carry of a number from token to token."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.display.named_arrays import NamedArray, at_mark, numbered
from duat_jax.display.page.graph_view import MovesView
from duat_jax.kinds import kept_as
from duat_jax.nn.linear import PRECISION
from duat_jax.transform.keys import Key, Marked

SOURCES = 6
"""The number of tokens that a token has edges from; the others are one sum."""


class LargestMoves(NamedTuple):
    """The moves of one layer's heads to each token from those that they bring most from, on the device.

    Args:
        sources: the indices of these tokens.
        parts: what each head moves from each of them.
        others: what each head moves from all others together.
    """

    sources: Int[Array, "tokens sources"]
    parts: Float[Array, "tokens sources heads"]
    others: Float[Array, "tokens heads"]


def largest_moves(parts: Float[Array, "heads queries keys"], count: int) -> LargestMoves:
    """Return the moves of heads to each token from those that they bring most from."""
    # As a product: JAX 0.10 takes sixty times as long for a sum over the first axis on a CPU.
    total = jnp.tensordot(jnp.ones(len(parts), parts.dtype), parts, 1, precision=PRECISION)
    sources = jax.lax.top_k(jnp.abs(total), count)[1]
    largest = jnp.take_along_axis(parts, sources[None], -1)
    chosen = jnp.put_along_axis(jnp.zeros(total.shape, bool), sources, True, -1, inplace=False)
    return LargestMoves(sources, jnp.moveaxis(largest, 0, -1), jnp.where(chosen, 0, parts).sum(-1).T)


@kept_as("moves", "duat_jax.interpret.graph.result:Moves")
class Moves(NamedTuple):
    """The moves of one layer's heads from token to token: to each token from those that they bring most from.

    Args:
        sources: of each edge the index of the token that it comes from, `[edges]`.
        tokens: of each edge the index of the token that it goes to, `[edges]`.
        parts: what each head moves along it, `[edges, heads]`.
        others: what each head moves to a token from all others together, `[tokens, heads]`.
    """

    sources: Int[np.ndarray, "edges"]
    tokens: Int[np.ndarray, "edges"]
    parts: Float[np.ndarray, "edges heads"]
    others: Float[np.ndarray, "tokens heads"]

    def as_array(self, key: Key) -> NamedArray:
        """Return what each head moves along each edge, with named axes."""
        edges, heads = self.parts.shape
        edge = {"edge": range(edges), "source_index": self.sources.tolist(), "target_index": self.tokens.tolist()}
        return NamedArray("moves", self.parts, {"edge": edge, **numbered("head", heads)}, at_mark(key))

    def view(self) -> MovesView:
        """Return the moves as a page shows them."""
        places = np.stack([self.sources, self.tokens], 1).astype(self.parts.dtype)
        return MovesView(np.concatenate([places, self.parts], 1), self.others)


def side_by_side(several: Sequence[Moves]) -> Moves:
    """Return the moves of several attentions of a layer as those of one, whose heads are counted on."""
    if len(several) == 1:
        return several[0]
    places = [[*zip(each.sources.tolist(), each.tokens.tolist(), strict=True)] for each in several]
    edges = {place: edge for edge, place in enumerate(dict.fromkeys(place for each in places for place in each))}
    columns = []
    for each, own in zip(several, places, strict=True):
        column = np.zeros((len(edges), each.parts.shape[1]), each.parts.dtype)
        column[[edges[place] for place in own]] = each.parts
        columns.append(column)
    sources, tokens = np.array([*edges], np.int64).reshape(-1, 2).T
    return Moves(sources, tokens, np.concatenate(columns, 1), np.concatenate([each.others for each in several], 1))


def edges_of(moves: Any, tokens: int) -> Moves:
    """Return the edges along which anything moves, without those of padding."""
    queries, places = np.nonzero(np.abs(moves.parts[:tokens]).sum(-1))
    return Moves(
        moves.sources[queries, places].astype(np.int64),
        queries.astype(np.int64),
        moves.parts[queries, places],
        moves.others[:tokens].copy(),
    )


class Move(NamedTuple):
    """The move of one head from one token to another.

    Args:
        key: the mark of what the layer's heads mix.
        source: the index of the token that it comes from.
        token: the index of the token that it goes to.
        head: the head.
        part: what it moves.
    """

    key: Key
    source: int
    token: int
    head: int
    part: float


def top_moves(moves: Marked[Moves], count: int) -> list[Move]:
    """Return the largest moves of heads by size."""
    sizes = np.concatenate([np.abs(each.parts).ravel() for each in moves.values()] or [np.zeros(0)])
    if not count or not len(sizes):
        return []
    least = np.sort(sizes)[-min(count, len(sizes))]
    listed = [
        Move(key, int(each.sources[edge]), int(each.tokens[edge]), int(head), float(each.parts[edge, head]))
        for key, each in moves.items()
        for edge, head in np.argwhere(np.abs(each.parts) >= least)
    ]
    return sorted(listed, key=lambda move: -abs(move.part))[:count]
