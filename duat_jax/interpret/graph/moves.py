"""Moves of attention heads: what they carry of a number from token to token."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from duat_jax.display.page.graph_view import MovesView
from duat_jax.display.view import numbers
from duat_jax.kinds import kept_as
from duat_jax.transform.keys import Key


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

    def view(self) -> MovesView:
        """Return the moves as a page shows them."""
        places = zip(self.sources.tolist(), self.tokens.tolist(), strict=True)
        edges = [[*place, *parts] for place, parts in zip(places, numbers(self.parts), strict=True)]
        return MovesView(edges, numbers(self.others))


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
