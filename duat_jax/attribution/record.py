"""The record of an attribution."""

from typing import Any, ClassVar

from duat_jax.forms.record import InputRecord, PredictionRecord, ReferenceRecord


class AttributionRecord(InputRecord, tag="attribution"):
    """The scores of an attribution method.

    Args:
        method: the name of the method.
        unit: the kind of units: `"token"`, `"neuron"`, `"head"` or `"stream"`.
        score: the formula of a score.
        source: where the method comes from.
        value: the number on the input.
        predictions: what the model says on the input; empty for an encoder.
        references: what the input is contrasted with; empty for a method without one.
        difference: the value minus the mean of the references' values; the value itself without one.
        scores: the scores, nested by layer, token and unit.
    """

    VERSION: ClassVar[int] = 3

    method: str
    unit: str
    score: str
    source: str
    value: float
    predictions: list[PredictionRecord]
    references: list[ReferenceRecord]
    difference: float
    scores: list[Any]
