"""Ratios of errors and of parameters by seed, of which some are known by bounds alone, and the verdicts on them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from experiments.estimate import Estimate, Method, estimate
from experiments.generalization.networks import FIXED, MOVING, WHOLE
from experiments.markdown import table
from experiments.study import Measure, Prediction
from experiments.table import Frames
from experiments.verdict import Verdict, decide

TARGET, FLOOR = 0.05, 0.02
"""The error that networks shall reach, and the one below which errors count as equal."""
CONFIRMED, REFUTED = 2.0, 1.2
"""The ratios from which on a prediction is confirmed, and below which it is refuted."""
GROUPS = {"the single layer": WHOLE, "fixed mixing": FIXED}
"""The rivals that a prediction is decided against."""


def logs(
    networks: pd.DataFrame, functions: str, column: str = "error", times: int = 1, floor: float = FLOOR
) -> pd.DataFrame:
    """Return the logarithms of a number, which is at least a floor, by seed in rows, and by network and width."""
    of = networks[(networks.functions == functions) & (networks.times == times)]
    return np.log(of.pivot(index="seed", columns=["network", "width"], values=column).clip(lower=floor))


def largest(of: pd.DataFrame) -> pd.DataFrame:
    """Return numbers of the largest network of each kind, by its name."""
    return of.xs(of.columns.get_level_values("width").max(), axis=1, level="width")


def geometric(logarithms: Sequence[float] | np.ndarray) -> Estimate:
    """Return the ratio whose logarithms over seeds are given, with its interval.

    Example:
        >>> geometric(np.log([1.0, 2.0, 4.0])).value
        2.0
    """
    of = estimate(logarithms)
    return of._replace(value=float(np.exp(of.value)), low=float(np.exp(of.low)), high=float(np.exp(of.high)))


class Ratio(NamedTuple):
    """The logarithm of a rival's number over that of a network whose mixing moves, of every seed.

    Args:
        name: the case that is compared.
        low: a lower bound of every seed, `[seeds]`.
        high: an upper bound of every seed; the same numbers where they are known.
    """

    name: str
    low: Float[np.ndarray, "seeds"]
    high: Float[np.ndarray, "seeds"]

    @property
    def bounded(self) -> bool:
        """Whether both bounds of every seed are numbers."""
        return bool(np.isfinite([self.low, self.high]).all())

    def estimate(self) -> Estimate:
        """Return the ratio, of which the lower bound is known, with its interval."""
        low, high = (
            geometric(bound)
            if np.isfinite(bound).all()
            else Estimate(*3 * (float(np.exp(bound.sum())),), len(bound), Method.STUDENT)
            for bound in (self.low, self.high)
        )
        return low._replace(high=high.high)


Cases = Callable[[Frames, str, Sequence[str]], list[Ratio]]
"""From measurements, the network that moves and its rivals to the ratios that decide."""


def known(name: str, logarithms: pd.Series | np.ndarray) -> Ratio:
    """Return the case of a ratio that is known."""
    return Ratio(name, np.asarray(logarithms), np.asarray(logarithms))


def needed(
    parameters: Float[np.ndarray, "sizes"], error: Float[np.ndarray, "sizes"], target: float = TARGET
) -> tuple[float, float]:
    """Return bounds of the number of parameters at which the error falls to a target.

    Example:
        >>> needed(np.array([10.0, 1000.0]), np.array([0.1, 0.2]), 0.05)
        (1000.0, inf)
    """
    # Between two sizes it is on a line in logarithms; it is only known to be below the smallest size, if that reaches
    # the target, or above the largest one, if none does.
    if not (error <= target).any():
        return float(parameters[-1]), float("inf")
    first = int(np.argmax(error <= target))
    if first == 0:
        return 0.0, float(parameters[0])
    (x0, x1), (y0, y1) = np.log(parameters[first - 1 : first + 1]), np.log(error[first - 1 : first + 1])
    number = float(np.exp(x0 + (np.log(target) - y0) / (y1 - y0) * (x1 - x0)))
    return number, number


def sizes_needed(networks: pd.DataFrame) -> Float[np.ndarray, "seeds bounds"]:
    """Return bounds of the number of parameters that each seed of one kind of network needs for the target."""
    return np.array([needed(of.parameters.to_numpy(float), of.error.to_numpy()) for _, of in networks.groupby("seed")])


def logs_needed(networks: pd.DataFrame, functions: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of the logarithm of the number of parameters for the target, of every seed."""
    of = networks[(networks.functions == functions) & (networks.network == kind) & (networks.times == 1)]
    with np.errstate(divide="ignore"):
        low, high = np.log(sizes_needed(of).T)
    return low, high


def parameters_needed(rows: pd.DataFrame) -> str:
    """Format the median of the parameters that are needed, and their range over seeds."""

    def written(low: float, high: float) -> str:
        if low == high:
            return f"{low:,.0f}"
        return f"> {low:,.0f}" if np.isinf(high) else f"< {high:,.0f}"

    ordered = sorted(map(tuple, sizes_needed(rows)), key=lambda bounds: bounds[::-1])
    low, middle, high = (written(*ordered[i]) for i in (0, len(ordered) // 2, -1))
    return middle if low == high else f"{middle} [{low}, {high}]"


def deciding(ratios: Sequence[Ratio], refuted: float = REFUTED) -> Estimate:
    """Return the ratio that is worst for the prediction of large ones."""
    # It is the smallest one that refutes it, or else the one with the smallest lower end.
    found = [of.estimate() for of in ratios]
    refuting = [of for of in found if of.high < refuted]
    return min(refuting or found, key=lambda of: of.high if refuting else of.low)


def worst(cases: Cases, mover: str, rivals: Sequence[str], refuted: float, frames: Frames) -> Estimate:
    """Return the ratio of the case that is worst for a prediction."""
    return deciding(cases(frames, mover, rivals), refuted)


def large(ratio: Estimate, confirmed: float = CONFIRMED, refuted: float = REFUTED) -> Verdict:
    """Return whether a ratio is large, by the worst of several cases.

    Example:
        >>> large(geometric(np.log([2.2, 2.3, 2.4]))).value
        'confirmed'
    """
    return decide(ratio.low >= confirmed, ratio.high < refuted)


def opposite(verdict: Verdict) -> Verdict:
    """Return the verdict on the opposite view.

    Example:
        >>> opposite(Verdict.CONFIRMED).value
        'refuted'
    """
    return {Verdict.CONFIRMED: Verdict.REFUTED, Verdict.REFUTED: Verdict.CONFIRMED}.get(verdict, verdict)


def prediction(
    name: str,
    measured: str,
    cases: Cases,
    mover: str = "",
    rivals: Sequence[str] = (),
    confirmed: float = CONFIRMED,
    refuted: float = REFUTED,
) -> Prediction:
    """Return the prediction that all ratios are large.

    Args:
        name: the prediction.
        measured: the ratio that is measured.
        cases: the ratios that decide.
        mover: the network that moves.
        rivals: the networks that it is compared with.
        confirmed: the ratio from which on a case confirms.
        refuted: the ratio below which a case refutes.
    """
    return Prediction(
        name,
        f"confirmed if the whole interval of every ratio is at least {confirmed:g}, refuted if that of one is below"
        f" {refuted:.3g}",
        (Measure(f"{measured}, smallest ratio", partial(worst, cases, mover, rivals, refuted), 2),),
        partial(large, confirmed=confirmed, refuted=refuted),
    )


def predictions(name: str, statement: str, cases: Cases) -> Iterator[Prediction]:
    """Yield a prediction for the Transformer and for linear attention, against each group of rivals."""
    for mover in reversed(MOVING):
        for against, rivals in GROUPS.items():
            ratio = f"{name}: {against} over the {mover}"
            yield prediction(f"{name}, {mover} against {against}: {statement}", ratio, cases, mover, rivals)


def ratios_table(cases: Mapping[str, Cases], frames: Frames) -> list[str]:
    """Return the table of all ratios that decide, for both networks that move."""
    rows = []
    for title, of in cases.items():
        by_mover = [of(frames, mover, WHOLE + FIXED) for mover in MOVING]
        rows += [
            [title, ratios[-1].name, *(ratio.estimate().written(2) for ratio in ratios)]
            for ratios in zip(*by_mover, strict=True)
        ]
    note = (
        "Ratios of rivals to the network at the top; brackets are 95 % intervals by Student's t of logarithms, n = 5."
    )
    return [*table(["prediction", "case", *MOVING], rows), "", f"*{note}*"]


def labelled(networks: pd.DataFrame) -> pd.DataFrame:
    """Return networks by width, of which those that trained longer are named so with their functions."""
    longer = networks.functions + ", " + networks.times.astype(str) + " times as long"
    named = networks.assign(functions=networks.functions.where(networks.times == 1, longer))
    return named.sort_values("width", kind="stable")
