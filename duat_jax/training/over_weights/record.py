"""The record of a number's change over weights and segments."""

from duat_jax.forms.record import CompletenessRecord
from duat_jax.json_record import Record


class WeightLedgerRecord(Record, tag="weight ledger"):
    """The JSON of a `WeightLedger`.

    Args:
        difference: the number of the last weights minus that of the first ones.
        values: the number before each segment, and after all.
        sums: of every array of weights, the sum of its parts in each segment.
        discontinuities: in each segment, the sum of the parts that have no slope, such as a router's choice.
        completeness: of each segment, the sum of all parts against the difference.
        overall: the same from the first weights to the last.
    """

    difference: float
    values: list[float]
    sums: dict[str, list[float]]
    discontinuities: list[float]
    completeness: list[CompletenessRecord]
    overall: CompletenessRecord | None = None
