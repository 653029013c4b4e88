"""Comparison of methods: statistics of their curves with confidence intervals, and paired differences."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation.circuit_curve import STATISTICS, Curve, columns, faithfulness, number
from duat_jax.evaluation.statistics import IntervalEstimate, bootstrap_of_groups


class Row(NamedTuple):
    """Results of one method.

    Args:
        kept: its faithfulness with the circuit kept, for each of `FRACTIONS`, the mean over tasks, `[fractions]`.
        removed: the same with the circuit removed.
        numbers: the statistics of its curves, by their names in `STATISTICS`, with intervals of 95 %.
        ahead: the first method's `logf` minus this one's, paired by prompt; the intervals of all methods
            together have a confidence of 95 %.
    """

    kept: Float[np.ndarray, "fractions"]
    removed: Float[np.ndarray, "fractions"]
    numbers: dict[str, IntervalEstimate]
    ahead: IntervalEstimate


def _ahead(means: np.ndarray) -> Any:
    """Return the difference of two methods' `logf` from their concatenated means."""
    first, other = np.split(means, 2, -1)
    return number("logf", first) - number("logf", other)


def compare(tasks: Sequence[Mapping[str, Curve]]) -> dict[str, Row]:
    """Compare the curves of several methods, with the same weight for each task.

    The bootstrap resamples prompts, and with several tasks the tasks too.

    Args:
        tasks: for each task, the curve of each method on the same prompts; the other methods are compared with the
            first one.
    """
    methods = list(tasks[0])

    def row(method: str) -> Row:
        curves = [task[method] for task in tasks]
        measured = [columns(curve) for curve in curves]
        first = [columns(task[methods[0]]) for task in tasks]
        paired = [np.concatenate(both, 1) for both in zip(first, measured, strict=True)]
        return Row(
            np.mean([faithfulness(curve, curve.kept) for curve in curves], 0),
            np.mean([faithfulness(curve, curve.removed) for curve in curves], 0),
            {name: bootstrap_of_groups(measured, partial(number, name)) for name in STATISTICS},
            bootstrap_of_groups(paired, _ahead, max(1, len(methods) - 1)),
        )

    return {method: row(method) for method in methods}


def as_dict(table: Mapping[str, Row]) -> dict[str, Any]:
    """Return a table as plain data."""
    return {
        method: {
            "kept": row.kept.tolist(),
            "removed": row.removed.tolist(),
            **{name: estimate._asdict() for name, estimate in row.numbers.items()},
            "first_ahead": row.ahead._asdict(),
        }
        for method, row in table.items()
    }
