"""Losses of every seed and text, their differences with an interval over each, and what decides on these."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float

from duat_jax.evaluation.statistics import students_mean
from experiments.estimate import Estimate, Method
from experiments.long_context.reading import label
from experiments.study import Measure
from experiments.table import Cell, Frames, Table, rows_of
from experiments.verdict import Verdict, decide

Units = Float[np.ndarray, "seeds texts"]
"""A number of every seed and text."""

STATED, FURTHER = "stated", "further"
"""The learning rates that were stated beforehand, and those with further ones."""
LEVEL = 0.01
"""The difference of losses in nats below which networks are level."""


def units(networks: pd.DataFrame, network: str, column: str = "late", rates: str = STATED) -> Units:
    """Return a number of every seed and text of a network; where no further rate was better, at the stated one."""
    rows = rows_of(networks, network=network, rates=rates)
    return np.array([*(rows if len(rows) else rows_of(networks, network=network))[column]])


def over_texts(values: Units) -> Estimate:
    """Return the mean with its interval over texts, by Student's t, as was stated beforehand."""
    of_texts = values.mean(0)
    return Estimate(*students_mean(of_texts), len(of_texts), Method.STUDENT)


def both(name: str, values: Callable[[Frames], Units]) -> tuple[Measure, Measure]:
    """Return a mean with its interval over seeds, and with that over texts."""
    return (
        Measure(f"{name}, over seeds", lambda frames: values(frames).mean(1), 4, "+"),
        Measure(f"{name}, over texts", lambda frames: over_texts(values(frames)), 4, "+"),
    )


# An interval over three seeds by Student's t has every seed in it: no seed has another sign than its whole.


def positive(*estimates: Estimate) -> bool:
    """Return whether all intervals, and with that over seeds every seed, are above zero."""
    return all(of.low > 0 for of in estimates)


def negative(*estimates: Estimate) -> bool:
    """Return whether all intervals are below zero."""
    return all(of.high < 0 for of in estimates)


def level(*estimates: Estimate) -> bool:
    """Return whether all intervals are of differences that count as none."""
    return all(of.low > -LEVEL and of.high < LEVEL for of in estimates)


def compared(*estimates: Estimate) -> Verdict:
    """Return whether a difference is positive; one that is level counts as none."""
    return decide(positive(*estimates), negative(*estimates) or level(*estimates))


def differences(pairs: Iterable[tuple[str, str, str]]) -> Table:
    """Return the table of differences of two networks' losses, of first, second and rates."""

    def prepare(networks: pd.DataFrame) -> pd.DataFrame:
        rows = []
        for first, second, rates in pairs:
            losses = [units(networks, name, rates=rates) for name in (first, second)]
            row = {"first − second": f"{first} − {second}", "rates": rates, "difference": losses[0] - losses[1]}
            rows.append(row | {"first": losses[0].mean(1), "second": losses[1].mean(1)})
        return pd.DataFrame(rows)

    cells = {
        "loss of the first": Cell(lambda of: of["first"].iloc[0]),
        "loss of the second": Cell(lambda of: of["second"].iloc[0]),
        "over seeds": Cell(lambda of: of.difference.iloc[0].mean(1), 4, "+"),
        "over texts": Cell(lambda of: over_texts(of.difference.iloc[0]), 4, "+"),
    }
    return Table("networks", ("first − second", "rates"), cells, prepare=prepare)


def by_position(count: int, longest: int, cells: Mapping[str, Cell]) -> Table:
    """Return the table of losses at the stated rates by position, and of cells beside them."""
    labels = [label(i, 2, longest=longest) for i in range(1, count + 1)]

    def prepare(networks: pd.DataFrame) -> pd.DataFrame:
        stated = rows_of(networks, rates=STATED)
        losses = pd.DataFrame([*stated.positions], stated.index, labels)
        return pd.concat([stated.assign(late=stated.late.map(np.mean)), losses], axis=1)

    return Table("networks", ("network",), {**{name: Cell(name) for name in labels}, **cells}, prepare=prepare)


def _listed(rows: pd.DataFrame) -> str:
    return "; ".join(f"{of.rate:g}: {of.loss:.3f}" for of in rows.sort_values("rate").itertuples())


TRIALS = Table("trials", ("network",), {"rate: loss": Cell(_listed)})
"""The losses by which learning rates were chosen, the further ones among them."""
