"""The records of completeness, of predictions and of references, which those of results are made of."""

from typing import Literal

import msgspec

from duat_jax.json_record import Record


class CompletenessRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The agreement of a sum of parts with the value that was split.

    Args:
        sum: the sum of all parts.
        error: the sum minus the value.
        tolerance: the bound on the error by rounding.
        largest: the size of the largest part.
        verdict: `"holds"`; `"fails"` if the error exceeds the tolerance; `"inconclusive"` if a wrong part could hide
            within it.
        note: that every part is zero, or why the sum doesn't hold, as far as it is known, and what to do.
    """

    sum: float
    error: float
    tolerance: float
    largest: float
    verdict: Literal["holds", "fails", "inconclusive"]
    note: str | None = None


class OutputRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A token or a class that a target reads.

    Args:
        id: the id of the token, or the index of the class.
        text: the token's text, or the class's name.
    """

    id: int
    text: str


class TargetRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The number of a model that a result is about.

    Args:
        headline: the target in words.
        kind: its class in `duat.targets`: `"Logit"`, `"LogProbability"`, `"ClassLogit"`, `"Direction"`, `"Similarity"`,
            or the name of a class of one's own.
        output: the token or class that is read; none of a target that reads none.
        contrast: the token or class that is subtracted; none if nothing is.
        against: the text that a similarity compares with; none of every other target.
        position: the index of the token at which it is read; none if it isn't read at one.
        stream: the number of layers before the residual stream that is read; none of the model's output.
    """

    headline: str
    kind: str
    output: OutputRecord | None
    contrast: OutputRecord | None
    against: str | None
    position: int | None
    stream: int | None


class PredictionRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A probable output of a model.

    Args:
        token: its text, or the name of a class.
        probability: its probability.
        id: the id of the token, or the index of the class; unknown in JSON of an older version.
    """

    token: str
    probability: float
    id: int | None = None


class ReferenceRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A reference that an input is contrasted with.

    Args:
        name: what it is, in words.
        tokens: a text's tokens; empty for a baseline and an image.
        value: the number there.
        predictions: the most probable outputs there; empty for an encoder.
        unpaired: the indices of the text's tokens that an alignment pairs with none of its own.
    """

    name: str
    tokens: list[str]
    value: float
    predictions: list[PredictionRecord]
    unpaired: list[int]


class InputRecord(Record):
    """The record of a result about an input.

    Args:
        model: the name of the model.
        family: its checkpoint family.
        tokens: the text, token by token; the patches of an image.
        target: the target: in words, and by what it reads.
    """

    model: str
    family: str
    tokens: list[str]
    target: TargetRecord


class ValueRecord(InputRecord):
    """The record of a value that is split.

    Args:
        dtype: of everything computed.
        predictions: the most probable tokens or classes; empty for an encoder.
        value: the explained number, from the plain forward pass.
        completeness: the sum of all parts against the value.
    """

    dtype: str
    predictions: list[PredictionRecord]
    value: float
    completeness: CompletenessRecord


class ChangeRecord(InputRecord):
    """The record of the change of a number between two runs.

    Args:
        dtype: of everything computed.
        before: the number on the first run, such as that without adapters.
        after: the number on the second run, such as that with adapters.
        difference: the one minus the other.
    """

    dtype: str
    before: float
    after: float
    difference: float
