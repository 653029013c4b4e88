"""Methods beside each other: the numbers of their curves, with errors, and paired differences."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.analysis.faithfulness import (
    STATISTICS,
    Curve,
    Measured,
    faithfulness,
    jackknife,
    mean,
)


class Row(NamedTuple):
    """One method.

    Args:
        kept: its faithfulness where the circuit is kept, for each of `FRACTIONS`, `[fractions]`.
        removed: the same where it is removed.
        numbers: one number of its curve each, by a name in `STATISTICS`.
        ahead: by how much the first method's `logf` is larger, prompt by prompt paired.
    """

    kept: Float[np.ndarray, "fractions"]
    removed: Float[np.ndarray, "fractions"]
    numbers: dict[str, Measured]
    ahead: Measured


def compare(curves: Mapping[str, Curve]) -> dict[str, Row]:
    """Return what the curves of several methods on the same prompts say.

    Args:
        curves: the curve of each method; the first one is what the others are compared with.
    """
    logf, first = STATISTICS["logf"], next(iter(curves.values()))

    def row(curve: Curve) -> Row:
        return Row(
            faithfulness(curve, curve.kept),
            faithfulness(curve, curve.removed),
            {name: jackknife(statistic, curve) for name, statistic in STATISTICS.items()},
            jackknife(lambda pair: logf(pair[0]) - logf(pair[1]), (first, curve)),
        )

    return {method: row(curve) for method, curve in curves.items()}


def over_tasks(tables: Iterable[Mapping[str, Row]]) -> dict[str, Row]:
    """Return the means over tasks, each task of the same weight.

    Args:
        tables: what each task says of the same methods.
    """
    tables = list(tables)

    def row(rows: list[Row]) -> Row:
        return Row(
            np.mean([one.kept for one in rows], 0),
            np.mean([one.removed for one in rows], 0),
            {name: mean([one.numbers[name] for one in rows]) for name in STATISTICS},
            mean([one.ahead for one in rows]),
        )

    return {method: row([table[method] for table in tables]) for method in tables[0]}


def as_dict(table: Mapping[str, Row]) -> dict[str, Any]:
    """Return a table as plain data.

    Args:
        table: the row of each method.
    """

    def plain(measured: Measured) -> dict[str, Any]:
        return {**measured._asdict(), "interval": measured.interval}

    return {
        method: {
            "kept": row.kept.tolist(),
            "removed": row.removed.tolist(),
            **{name: plain(number) for name, number in row.numbers.items()},
            "first_ahead": plain(row.ahead),
        }
        for method, row in table.items()
    }
