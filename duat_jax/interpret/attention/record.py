"""The record of an attention score."""

from typing import ClassVar

import msgspec

from duat_jax.forms.record import CompletenessRecord
from duat_jax.json_record import Record


class SourceRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A summand of a query or of a key.

    Args:
        part: the part of the model.
        token: the index of the token; none of a bias.
    """

    part: str
    token: int | None


class PairRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A pair of sources.

    Args:
        query: of the query.
        key: of the key.
        contribution: what the pair adds to the score.
    """

    query: SourceRecord
    key: SourceRecord
    contribution: float


class AttentionScoreRecord(Record, tag="attention score"):
    """The JSON of `duat attention`: a score, the largest pairs, and sums over pairs.

    Args:
        model: the name of the model.
        family: its checkpoint family.
        layer: the layer.
        head: the head.
        query: the index of the token that attends.
        key: the index of the token that it attends to.
        contrast: the index of the token whose score is subtracted; none if absent.
        tokens: the text, token by token.
        attention: how much of its attention the query gives to every token.
        dtype: of everything computed.
        value: the score, or the difference of two, from the forward pass.
        completeness: the sum of all pairs against the value.
        parts: names of the groups of sources.
        by_part: what each pair of groups adds: query side by key side.
        by_token: the same of every pair of tokens; the biases are the last row and column.
        top: the largest pairs.
    """

    VERSION: ClassVar[int] = 2

    model: str
    family: str
    layer: int
    head: int
    query: int
    key: int
    contrast: int | None
    tokens: list[str]
    attention: list[float]
    dtype: str
    value: float
    completeness: CompletenessRecord
    parts: list[str]
    by_part: list[list[float]]
    by_token: list[list[float]]
    top: list[PairRecord]
