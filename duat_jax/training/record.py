"""The record of a training whose effect on a text is explained."""

from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from duat_jax.json_record import Record, as_record
from duat_jax.training.next_token import TrainingSettings
from duat_jax.training.over_examples.record import InfluenceRecord
from duat_jax.training.over_examples.result import Influence


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


def as_training_record(
    found: Influence,
    model: str,
    family: str,
    text: str,
    settings: TrainingSettings,
    parts: Float[np.ndarray, "pieces predicted"],
    pieces: list[Piece],
    places: list[str],
) -> dict[str, Any]:
    """Return the record as plain data."""
    return as_record(
        TrainLedgerRecord,
        settings,
        model=model,
        family=family,
        text=text,
        tokens=parts.shape[1] + 1,
        pieces=pieces,
        parts=parts.sum(1),
        influence=found,
        places=places,
    )
