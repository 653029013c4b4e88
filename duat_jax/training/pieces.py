"""The pieces of text with the largest parts in a number's change along a training, for terminal and JSON."""

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from rich.console import RenderableType
from rich.text import Text

from duat_jax.display.tables import NumberTable, number
from duat_jax.models.vocabulary.running import run_texts
from duat_jax.models.vocabulary.token import token_label
from duat_jax.training.record import Piece

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NEAR = 6
"""The tokens that are shown on either side of the one with the largest part."""


def piece_of(
    index: int,
    ids: Int[np.ndarray, "tokens"],
    parts: Float[np.ndarray, "predicted"],
    reads: int,
    tokenizer: "Tokenizer",
    place: str,
) -> Piece:
    """Return a piece with the token that did most in its direction."""
    part = float(parts.sum())
    most = 1 + int(np.argmax(parts * np.sign(part)))
    first = max(0, most - NEAR)
    cuts = pairwise((first, most, most + 1, most + 1 + NEAR))
    ((before, token, after),) = run_texts(tokenizer, [[ids[begin:end].tolist() for begin, end in cuts]])
    shown = f"{token_label(before)}»{token_label(token)}«{token_label(after)}"
    return Piece(index, part, reads, most, float(parts[most - 1]), shown, place)


def extremes(parts: Float[np.ndarray, "pieces"], count: int) -> Int[np.ndarray, "some"]:
    """Return the numbers of the pieces with the lowest parts and of those with the highest, without zeros."""
    order = np.argsort(parts, kind="stable")
    lowest, highest = order[:count], order[::-1][:count][::-1]
    return np.concatenate([lowest[parts[lowest] < 0], highest[parts[highest] > 0]])


def render(pieces: list[Piece], examples: float, difference: float) -> RenderableType:
    """Return the table of pieces, with the sum of all others and of all else that moved the number."""
    table = NumberTable(title="Pieces of text that moved the number most, and the token in each that did")
    for column in ("piece", "read", "part", "of the token"):
        table.add_column(column, justify="right")
    table.add_column("begins at")
    table.add_column("text")
    for piece in pieces:
        of_piece, of_token = number(piece.part), number(piece.token_part)
        table.add_row(
            str(piece.piece), f"{piece.reads} ×", of_piece, of_token, Text(piece.place or ""), Text(piece.text)
        )
    shown = sum(piece.part for piece in pieces)
    table.add_row("", "", number(examples - shown), "", "", "all other pieces")
    table.add_row("", "", number(difference - examples), "", "", "weights in the updates, rounding and all else")
    table.add_row("", "", number(difference), "", "", Text("together", style="bold"))
    return table
