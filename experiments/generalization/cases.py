"""The cases of the predictions about functions that a prompt gives: ratios of rivals to networks that move."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from jaxtyping import Float

from experiments.estimate import Estimate
from experiments.generalization.networks import FIXED, MOVING, WHOLE
from experiments.generalization.ratios import (
    CONFIRMED,
    REFUTED,
    TARGET,
    Ratio,
    deciding,
    floored,
    known,
    large,
    needed,
    of_errors,
)
from experiments.generalization.tasks import FAMILIES, Named
from experiments.markdown import table
from experiments.study import Measure, Prediction
from experiments.table import Cell, Frames

EQUAL, RARE, MANY = "16 functions", "16 functions, unequal", ("64 functions", "256 functions", "64 dense functions")
UNEQUAL = Named(digits=2, base=4, rarest=0.01)
"""The functions of `RARE`, which are the same as those of `EQUAL`."""
GROUPS = {"the single layer": WHOLE, "fixed mixing": FIXED}
"""The rivals that a prediction is decided against."""

Cases = Callable[[Frames, str, Sequence[str]], list[Ratio]]
"""From measurements, the network that moves and its rivals to the ratios that decide."""


def numbers(
    networks: pd.DataFrame, functions: str, kind: str, column: str = "error", width: int | None = None, times: int = 1
) -> Float[np.ndarray, "seeds"]:
    """Return a number of every seed of a network, of the largest one without a width."""
    of = networks[(networks.functions == functions) & (networks.network == kind) & (networks.times == times)]
    return of[of.width == (of.width.max() if width is None else width)][column].to_numpy(float)


def widths(networks: pd.DataFrame, functions: str) -> list[int]:
    """Return the widths of the networks on functions."""
    return sorted(networks[networks.functions == functions].width.unique().tolist())


def sizes_needed(networks: pd.DataFrame) -> Float[np.ndarray, "seeds bounds"]:
    """Return bounds of the number of parameters that each seed of one kind of network needs for the target."""
    return np.array([needed(of.parameters.to_numpy(float), of.error.to_numpy()) for _, of in networks.groupby("seed")])


def logs_needed(networks: pd.DataFrame, functions: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of the logarithm of the number of parameters for the target, of every seed."""
    of = networks[(networks.functions == functions) & (networks.network == kind) & (networks.times == 1)]
    with np.errstate(divide="ignore"):
        low, high = np.log(sizes_needed(of).T)
    return low, high


def quarters(networks: pd.DataFrame, functions: str, kind: str) -> Float[np.ndarray, "quarters seeds"]:
    """Return the error on every quarter of the sixteen functions, from the most frequent to the rarest in `RARE`."""
    of = networks[(networks.functions == functions) & (networks.network == kind)]
    squares = np.array(of["by function"].tolist()) ** 2
    order = np.argsort(-np.asarray(UNEQUAL.shares()))
    return np.sqrt(squares[:, order].reshape(len(squares), 4, -1).mean(-1)).T


def many(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the parameters that rivals need for the target; where the mover doesn't reach it, their errors."""
    networks, cases = frames["networks"], []
    for functions in MANY:
        low, high = logs_needed(networks, functions, mover)
        for rival in rivals:
            name = f"{functions}, {rival}"
            if np.isinf(high).any():
                errors = (numbers(networks, functions, kind) for kind in (rival, mover))
                cases.append(of_errors(f"{name} (errors)", *errors))
            else:
                rival_low, rival_high = logs_needed(networks, functions, rival)
                cases.append(Ratio(name, rival_low - high, rival_high - low))
    return cases


def rare(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the errors on the rarest quarter, and how much larger they are than where all are equally frequent."""
    last = {kind: quarters(frames["networks"], RARE, kind)[-1] for kind in (mover, *rivals)}
    rise = {kind: of / floored(quarters(frames["networks"], EQUAL, kind)[-1]) for kind, of in last.items()}
    return [
        case
        for rival in rivals
        for case in (
            of_errors(f"error, {rival}", last[rival], last[mover]),
            known(f"rise, {rival}", np.log(rise[rival] / rise[mover])),
        )
    ]


def new(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the errors on new functions after as many demonstrations as training had."""
    networks = frames["networks"]
    return [
        of_errors(f"{family}, {rival}", numbers(networks, family, rival), numbers(networks, family, mover))
        for family in FAMILIES
        for rival in rivals
    ]


def longer(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the errors after 16 demonstrations over those after 32."""
    of = {family: [numbers(frames["networks"], family, mover, f"after {n}") for n in (16, 32)] for family in FAMILIES}
    return [of_errors(family, *both) for family, both in of.items()]


def more_training(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return a network's errors over those of the closest one of fixed mixing, trained four times as long."""
    networks = frames["networks"]
    of_longer = networks[networks.times > 1]
    return [
        of_errors(f"{functions}, {kind}", numbers(networks, functions, mover), of.error)
        for (functions, kind), of in of_longer.groupby(["functions", "network"], sort=False)
    ]


def worst(cases: Cases, mover: str, rivals: Sequence[str], refuted: float, frames: Frames) -> Estimate:
    """Return the ratio of the case that is worst for a prediction."""
    return deciding(cases(frames, mover, rivals), refuted)[1]


def predictions(
    name: str,
    statement: str,
    cases: Cases,
    groups: Mapping[str, Sequence[str]] = GROUPS,
    confirmed: float = CONFIRMED,
    refuted: float = REFUTED,
) -> Iterator[Prediction]:
    """Yield a prediction for the Transformer and for linear attention, against each group of rivals.

    Args:
        name: what it is about.
        statement: what is predicted.
        cases: the ratios that decide.
        groups: the rivals by name.
        confirmed: the ratio from which on a case confirms.
        refuted: the ratio below which a case refutes.
    """
    rule = f"confirmed if the whole interval of every ratio is at least {confirmed:g}, refuted if that of one is below"
    for mover in reversed(MOVING):
        for against, rivals in groups.items():
            ratio = f"{name}: {against} over the {mover}, smallest ratio"
            yield Prediction(
                f"{name}, {mover} against {against}: {statement}",
                f"{rule} {refuted:.3g}",
                (Measure(ratio, partial(worst, cases, mover, rivals, refuted), 2),),
                partial(large, confirmed=confirmed, refuted=refuted),
            )


def ratios_table(cases: Mapping[str, Cases], frames: Frames) -> list[str]:
    """Return the table of all ratios that decide, for both networks that move."""
    rows = []
    for title, of in cases.items():
        by_mover = [of(frames, mover, WHOLE + FIXED) for mover in MOVING]
        rows += [
            [title, ratios[0].name.removesuffix(" (errors)"), *(ratio.estimate().written(2) for ratio in ratios)]
            for ratios in zip(*by_mover, strict=True)
        ]
    note = (
        "Ratios of rivals to the network at the top; brackets are 95 % intervals by Student's t of logarithms, n = 5."
    )
    return [*table(["prediction", "case", *MOVING], rows), "", f"*{note}*"]


def parameters_needed(rows: pd.DataFrame) -> str:
    """Format the median of the parameters that are needed, and their range over seeds."""
    bounds = sizes_needed(rows)

    def written(low: float, high: float) -> str:
        if low == high:
            return f"{low:,.0f}"
        return f"> {low:,.0f}" if np.isinf(high) else f"< {high:,.0f}"

    ordered = bounds[np.lexsort(bounds.T)]
    low, middle, high = (written(*ordered[i]) for i in (0, len(ordered) // 2, -1))
    return middle if low == high else f"{middle} [{low}, {high}]"


def of_size(place: int) -> Callable[[pd.DataFrame], np.ndarray | str]:
    """Return what reads the errors of the smallest, the middle or the largest network, from its end if negative."""

    def read(rows: pd.DataFrame) -> np.ndarray | str:
        sizes = sorted(rows.width.unique())
        alone = len(sizes) == 1 and place != -1
        return "" if alone else rows[rows.width == sizes[place]].error.to_numpy()

    return read


SIZES = {
    "smallest": Cell(of_size(0)),
    "middle": Cell(of_size(1)),
    "largest": Cell(of_size(-1)),
    f"parameters for {TARGET}": Cell(parameters_needed),
}
"""Columns of a table of errors by size."""
