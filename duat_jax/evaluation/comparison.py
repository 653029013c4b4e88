"""Methods beside each other: the numbers of their curves with intervals, and paired differences."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation.circuit_curve import STATISTICS, Curve, columns, faithfulness, number
from duat_jax.evaluation.statistics import Estimate, bootstrap_of_groups


class Row(NamedTuple):
    """One method.

    Args:
        kept: its faithfulness where the circuit is kept, for each of `FRACTIONS`, the mean over tasks, `[fractions]`.
        removed: the same where it is removed.
        numbers: one number of its curves each, by a name in `STATISTICS`, with intervals of 95 %.
        ahead: by how much the first method's `logf` is larger, prompt by prompt paired; the intervals of all methods
            together hold with 95 %.
    """

    kept: Float[np.ndarray, "fractions"]
    removed: Float[np.ndarray, "fractions"]
    numbers: dict[str, Estimate]
    ahead: Estimate


def _ahead(means: np.ndarray) -> Any:
    """Return the difference of both methods' `logf` from their means, one behind the other."""
    first, other = np.split(means, 2, -1)
    return number("logf", first) - number("logf", other)


def compare(tasks: Sequence[Mapping[str, Curve]]) -> dict[str, Row]:
    """Return what the curves of several methods say, each task of the same weight.

    Prompts are drawn again, and where there are several tasks these too.

    Args:
        tasks: of each task the curve of each method on the same prompts; the first method is what the others are
            compared with.
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
    """Return a table as plain data.

    Args:
        table: the row of each method.
    """
    return {
        method: {
            "kept": row.kept.tolist(),
            "removed": row.removed.tolist(),
            **{name: estimate._asdict() for name, estimate in row.numbers.items()},
            "first_ahead": row.ahead._asdict(),
        }
        for method, row in table.items()
    }
