"""Circuits as CSV."""

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duat_jax.evaluation.circuit_study import Study

MOST = 10_000
"""The largest number of scored units of one kind that are all written; of more, those of the circuit are."""

COLUMNS = ("task", "units", "layer", "position", "token", "unit", "score", "in_circuit")


def to_csv(study: "Study") -> str:
    """Return the circuits of a study as CSV, one unit a row, those that rank highest first."""
    # Of each task and kind, every scored unit is written, or of more than `MOST` those of the circuit. `position` and
    # `token`, its text in the task's example, are empty for units at all tokens, and `unit` for streams.
    written = io.StringIO(newline="")
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(COLUMNS)
    for task, circuits in study.circuits.items():
        tokens = study.tokens[task]
        for kind, circuit in circuits.items():
            for unit in circuit.units(every=circuit.scores.size <= MOST):
                token = None if unit.position is None else tokens[unit.position]
                place = unit.layer, unit.position, token, unit.unit
                writer.writerow((task, kind, *place, repr(unit.score), int(unit.inside)))
    return written.getvalue()
