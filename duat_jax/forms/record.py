"""The records of completeness, of predictions and of references, which those of results are made of."""

from typing import Literal

import msgspec


class CompletenessRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The agreement of a sum of parts with the value that was split.

    Args:
        sum: the sum of all parts.
        error: the sum minus the value.
        tolerance: the bound on the error by rounding.
        largest: the size of the largest part.
        verdict: `"holds"`; `"fails"` if the error exceeds the tolerance; `"inconclusive"` if a wrong part could hide
            within it.
        note: a sentence if the forward pass itself is ill-conditioned.
    """

    sum: float
    error: float
    tolerance: float
    largest: float
    verdict: Literal["holds", "fails", "inconclusive"]
    note: str | None = None


class PredictionRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A probable output of a model.

    Args:
        token: its text, or the name of a class.
        probability: its probability.
    """

    token: str
    probability: float


class ReferenceRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A reference that an input is contrasted with.

    Args:
        name: what it is, in words.
        tokens: a text's tokens; empty for a baseline and an image.
        value: the number there.
        predictions: the most probable outputs there; empty for an encoder.
    """

    name: str
    tokens: list[str]
    value: float
    predictions: list[PredictionRecord]
