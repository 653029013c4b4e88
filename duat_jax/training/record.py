"""The record of a training whose effect on a text is explained."""

import msgspec

from duat_jax.json_record import Record
from duat_jax.training.over_examples.record import InfluenceRecord


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of text, and what its tokens did to the number.

    Args:
        piece: its number.
        part: the sum of its tokens' parts.
        reads: the number of steps that read it.
        token: the index of its token with the largest part of the piece's sign.
        token_part: that part.
        text: the tokens up to this one, and after it, marked by `»` and `«`.
        place: the file and the line where it begins, `file:line`.
    """

    piece: int
    part: float
    reads: int
    token: int
    token_part: float
    text: str
    place: str | None = None


class TrainLedgerRecord(Record, tag="train ledger"):
    """The JSON of `duat train-ledger`.

    Args:
        model: name of the model.
        family: its checkpoint family.
        text: the text whose mean loss is explained.
        steps: the number of steps.
        batch: the number of pieces in a step.
        tokens: the number of tokens in a piece.
        rate: the highest learning rate.
        seed: the seed of the order of the pieces.
        pieces: the pieces with the largest parts, from the lowest part to the highest.
        parts: the part of every piece, by its number.
        influence: the change of the loss as a sum over examples, and over weights.
        places: the file and the line where every piece begins, by its number.
    """

    model: str
    family: str
    text: str
    steps: int
    batch: int
    tokens: int
    rate: float
    seed: int
    pieces: list[Piece]
    parts: list[float]
    influence: InfluenceRecord
    places: list[str] | None = None
