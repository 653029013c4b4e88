"""The record of an intervention."""

from typing import Any, ClassVar

import msgspec

from duat_jax.forms.record import ChangeRecord, CompletenessRecord, PredictionRecord


class EffectRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The effect of one edit.

    Args:
        change: the edit, in words.
        tokens: at which tokens.
        units: which neurons or heads; none of a stream.
        frozen: what the table of contributions predicts, of each value, by token and unit.
        secant: the part of the measured difference, of each value.
        alone: the difference, measured with this edit alone.
        contrast: minus its part of the contrast with the text from which the values are; none of other edits.
    """

    change: str
    tokens: list[int]
    units: list[int] | None
    frozen: list[Any]
    secant: list[Any]
    alone: float
    contrast: float | None = None


class InterventionRecord(ChangeRecord, tag="intervention"):
    """An intervention.

    Args:
        before: the number without the edits.
        after: the number with all edits, the model run again.
        predictions: the most probable outputs without the edits; empty of an encoder.
        changed_predictions: those with all edits.
        effects: what each edit did.
        discontinuities: parts of what has no slope, by name.
        completeness: the sum of all parts against the difference.
        notes: what to know of the parts though they sum; none as a rule.
    """

    VERSION: ClassVar[int] = 3

    predictions: list[PredictionRecord]
    changed_predictions: list[PredictionRecord]
    effects: list[EffectRecord]
    discontinuities: dict[str, float]
    completeness: CompletenessRecord
    notes: list[str]
