"""The cases of the predictions about scarce capacity, longer prompts and dense regions."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from experiments.generalization.cases import logs_needed, numbers, widths
from experiments.generalization.curves import DENSE, EVEN, WEIGHTED
from experiments.generalization.networks import KINDS
from experiments.generalization.padded import CONSTANT, MARKED, RANDOM
from experiments.generalization.ratios import (
    CONFIRMED,
    FLOOR,
    REFUTED,
    TARGET,
    Ratio,
    floored,
    known,
    of_errors,
)
from experiments.table import Frames

FEW = "4 functions", "16 functions"
LENGTHS = {filling: f"6 further tokens, {filling}" for filling in (CONSTANT, RANDOM, MARKED)}
CURVES = {density: f"curves, {density}" for density in (EVEN, DENSE, WEIGHTED)}
LEARNED, AIM = (0.03, 0.3), 0.1
"""The errors after even training of which a multiple says something, and the one that widths are chosen by."""
TUNED = 16
"""The width at which curves were tuned."""
FIXED = "one layer"


def _logs(
    networks: pd.DataFrame, functions: str, kind: str, width: int, column: str = "error"
) -> Float[np.ndarray, "seeds"]:
    """Return the logarithm of a number of every seed, which is at least `FLOOR`."""
    return np.log(floored(numbers(networks, functions, kind, column, width)))


def _or_errors(case: Ratio, logs: np.ndarray, *, says: bool) -> Ratio:
    """Return a case, or that of errors, if they say something, where the first one is undecided for want of bounds."""
    ratio = case.estimate()
    if case.bounded or not says or ratio.low >= CONFIRMED or ratio.high < REFUTED:
        return case
    return known(f"{case.name} (errors)", logs)


def few(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the ratios of the parameters for the target, or of errors at the middle width."""
    networks, cases = frames["networks"], []
    for functions in FEW:
        middle = widths(networks, functions)[1]
        low, high = logs_needed(networks, functions, mover)
        own = numbers(networks, functions, mover, width=middle)
        for rival in rivals:
            rival_low, rival_high = logs_needed(networks, functions, rival)
            errors = numbers(networks, functions, rival, width=middle)
            case = Ratio(f"{functions}, {rival}", rival_low - high, rival_high - low)
            logs = np.log(floored(errors) / floored(own))
            cases.append(_or_errors(case, logs, says=max(errors.mean(), own.mean()) > FLOOR))
    return cases


def length(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the ratios of two multiples: parameters with further tokens over those with constant ones."""
    networks = frames["networks"]
    middle = widths(networks, LENGTHS[CONSTANT])[1]

    def multiple(kind: str, filling: str) -> tuple[np.ndarray, np.ndarray]:
        (low, high), (low_before, high_before) = (
            logs_needed(networks, LENGTHS[of], kind) for of in (filling, CONSTANT)
        )
        return low - high_before, high - low_before

    def logs(kind: str, filling: str) -> np.ndarray:
        return _logs(networks, LENGTHS[filling], kind, middle)

    def mean(kind: str, filling: str) -> float:
        return float(np.exp(logs(kind, filling)).mean())

    cases = []
    for filling in (RANDOM, MARKED):
        low, high = multiple(mover, filling)
        for rival in rivals:
            rival_low, rival_high = multiple(rival, filling)
            rises = (logs(kind, filling) - logs(kind, CONSTANT) for kind in (rival, mover))
            learned_before = max(mean(kind, CONSTANT) for kind in (rival, mover)) <= TARGET
            says = learned_before and max(mean(kind, filling) for kind in (rival, mover)) > FLOOR
            case = Ratio(f"{filling}, {rival}", rival_low - high, rival_high - low)
            cases.append(_or_errors(case, np.subtract(*rises), says=says))
    return cases


def learned(networks: pd.DataFrame, kind: str) -> int | None:
    """Return the width at which a network learns curves after even training, and not perfectly, or `None`."""
    # Of several it is the one with the error nearest to `AIM`.
    low, high = LEARNED
    even = CURVES[EVEN]
    means = {
        width: float(np.exp(_logs(networks, even, kind, width, "outside")).mean()) for width in widths(networks, even)
    }
    within = [width for width, mean in means.items() if low <= mean <= high]
    return min(within, key=lambda width: abs(np.log(means[width] / AIM)), default=None)


def rise(networks: pd.DataFrame, kind: str, width: int, functions: str = "curves") -> Float[np.ndarray, "seeds"]:
    """Return the logarithm of the error outside after dense training over that after even training."""
    dense_logs, even_logs = (_logs(networks, f"{functions}, {of}", kind, width, "outside") for of in (DENSE, EVEN))
    return dense_logs - even_logs


def outside(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the ratios of errors outside of the regions at equal parameters, in the mean over widths."""
    networks, curves = frames["networks"], CURVES[DENSE]
    return [
        known(
            f"error, {rival}",
            np.mean(
                [
                    _logs(networks, curves, rival, width, "outside") - _logs(networks, curves, mover, width, "outside")
                    for width in widths(networks, curves)
                ],
                0,
            ),
        )
        for rival in rivals
    ]


def dense(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the ratios of errors outside of the regions, and of their multiples of those after even training."""
    # Errors are compared at equal parameters, multiples at the widths at which each network has learned.
    networks = frames["networks"]
    own, cases = learned(networks, mover), outside(frames, mover, rivals)
    for rival in rivals:
        at = learned(networks, rival)
        if at is None or own is None:
            unknown = np.full(2, np.inf)
            cases.append(Ratio(f"rise, {rival}", -unknown, unknown))
        else:
            cases.append(known(f"rise, {rival}", rise(networks, rival, at) - rise(networks, mover, own)))
    return cases


def alike(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return how much less rivals' outputs differ in some other prompt's region, in the mean over widths."""
    networks, curves = frames["networks"], CURVES[DENSE]

    def slope(kind: str) -> np.ndarray:
        slopes = (_logs(networks, curves, kind, width, "slope, some other's") for width in widths(networks, curves))
        return np.mean([*slopes], 0)

    return [known(rival, slope(mover) - slope(rival)) for rival in rivals]


def every(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return outside over inside after dense training, divided by the same after even training, of each network."""
    networks = frames["networks"]

    def ratio(kind: str, density: str) -> np.ndarray:
        of_both = (_logs(networks, CURVES[density], kind, TUNED, where) for where in ("outside", "inside"))
        return np.subtract(*of_both)

    return [known(kind, ratio(kind, DENSE) - ratio(kind, EVEN)) for kind in KINDS]


def reading(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the error of the best output independent of the prompt over that of the single layer, outside."""
    own, blind = numbers(frames["networks"], CURVES[DENSE], FIXED, "outside"), frames["blind"]
    best = blind[(blind.functions == CURVES[DENSE]) & (blind.output == "blind")].outside.item()
    return [of_errors(FIXED, np.full_like(own, best), own)]


def rare(frames: Frames, mover: str, rivals: Sequence[str]) -> list[Ratio]:
    """Return the single layer's error outside over that after longer training."""
    networks = frames["networks"]
    times = int(networks.times.max())
    own, longer = (numbers(networks, CURVES[DENSE], FIXED, "outside", TUNED, times=of) for of in (1, times))
    return [of_errors(FIXED, own, longer)]
