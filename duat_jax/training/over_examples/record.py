"""The record of a number's change over the examples of every step."""

from duat_jax.forms.record import CompletenessRecord
from duat_jax.json_record import Record
from duat_jax.training.over_weights.record import WeightLedgerRecord


class InfluenceRecord(Record, tag="influence"):
    """The JSON of an `Influence`.

    Args:
        difference: the number after the training minus that before it.
        parts: the sums of all parts over the run, by kind.
        rows: of every step, the part of each row of its batch.
        losses: the loss of every step.
        kept: the numbers of steps after which states were kept.
        completeness: the sum of all parts against the difference.
        ledger: the same change over weights and segments.
    """

    difference: float
    parts: dict[str, float]
    rows: list[list[float]]
    losses: list[float]
    kept: list[int]
    completeness: CompletenessRecord
    ledger: WeightLedgerRecord
