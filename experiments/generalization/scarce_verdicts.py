"""The verdicts on the predictions about scarce capacity, longer prompts and dense regions, by the page's rules."""

from collections.abc import Sequence
from functools import reduce
from operator import getitem
from typing import Any

import numpy as np
from jaxtyping import Float

from experiments.generalization.curves import DENSE, EVEN, WEIGHTED
from experiments.generalization.networks import KINDS, MOVING
from experiments.generalization.padded import CONSTANT, MARKED, RANDOM
from experiments.generalization.verdicts import (
    CONFIRMED,
    FLOOR,
    GROUPS,
    REFUTED,
    TARGET,
    Case,
    errors,
    known,
    least,
    network_of,
    sizes_needed,
    verdict,
)
from experiments.markdown import table

Results = dict[str, Any]
FEW = "4 functions", "16 functions"
LENGTHS = {filling: f"6 further tokens, {filling}" for filling in (CONSTANT, RANDOM, MARKED)}
CURVES = {density: f"curves, {density}" for density in (EVEN, DENSE, WEIGHTED)}
LEARNED, AIM = (0.03, 0.3), 0.1
"""The errors after even training of which a multiple says something, and the one that widths are chosen by."""
TUNED = 16
"""The width at which curves were tuned."""
FIXED = "one layer"


def read_errors(results: Results, study: str, kind: str, width: int, *keys: str) -> Float[np.ndarray, "seeds"]:
    """Return a number of every seed, at least `FLOOR`."""
    seeds = network_of(results, study, kind, width)["seeds"]
    return np.maximum([reduce(getitem, keys, seed) for seed in seeds], FLOOR)


def _widths(results: Results, study: str) -> list[int]:
    widths: list[int] = results["settings"]["studies"][study][1]
    return widths


def _needed(results: Results, study: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of the logarithm of the number of parameters, of every seed."""
    with np.errstate(divide="ignore"):
        low, high = np.log(sizes_needed(results, study, kind).T)
    return low, high


def _or_errors(case: Case, of_errors: Case, *, says: bool) -> Case:
    """Return a case, or that of errors, if they say something, where the first one is undecided for want of bounds."""
    ratio, bounded = case.ratio(), np.isfinite([case.low, case.high]).all()
    return case if bounded or not says or ratio.low >= CONFIRMED or ratio.high <= REFUTED else of_errors


def few(results: Results, mover: str, rivals: Sequence[str]) -> list[Case]:
    """Return the ratios of the parameters for the target, or of errors at the middle width."""
    cases = []
    for study in FEW:
        low, high = _needed(results, study, mover)
        own = errors(results, study, mover, _widths(results, study)[1])
        for rival in rivals:
            rival_low, rival_high = _needed(results, study, rival)
            name, rival_error = f"{rival}, {study}", errors(results, study, rival, _widths(results, study)[1])
            case = Case(name, rival_low - high, rival_high - low)
            says = max(rival_error.mean(), own.mean()) > FLOOR
            cases.append(_or_errors(case, known(f"{name} (errors)", rival_error, own), says=says))
    return cases


def length(results: Results, mover: str, rivals: Sequence[str]) -> list[Case]:
    """Return the ratios of two multiples: parameters with further tokens over those with constant ones."""

    def multiple(kind: str, filling: str) -> tuple[np.ndarray, np.ndarray]:
        (low, high), (low_before, high_before) = (_needed(results, LENGTHS[of], kind) for of in (filling, CONSTANT))
        return low - high_before, high - low_before

    middle = _widths(results, LENGTHS[CONSTANT])[1]

    def rise(kind: str, filling: str) -> np.ndarray:
        after, before = (read_errors(results, LENGTHS[which], kind, middle, "error") for which in (filling, CONSTANT))
        return np.log(after / before)

    def learns(kind: str) -> bool:
        return float(read_errors(results, LENGTHS[CONSTANT], kind, middle, "error").mean()) <= TARGET

    cases = []
    for filling in (RANDOM, MARKED):
        low, high = multiple(mover, filling)
        for rival in rivals:
            (rival_low, rival_high), name = multiple(rival, filling), f"{rival}, {filling}"
            logs = rise(rival, filling) - rise(mover, filling)
            case = Case(name, rival_low - high, rival_high - low)
            apart = max(read_errors(results, LENGTHS[filling], kind, middle, "error").mean() for kind in (rival, mover))
            says = learns(rival) and learns(mover) and apart > FLOOR
            cases.append(_or_errors(case, Case(f"{name} (errors)", logs, logs), says=says))
    return cases


def learned(results: Results, kind: str) -> int | None:
    """Return the width at which a network learns curves after even training, and not perfectly, or `None`."""
    # Of several it is the one with the error nearest to `AIM`.
    low, high = LEARNED
    widths = _widths(results, CURVES[EVEN])
    means = {width: float(read_errors(results, CURVES[EVEN], kind, width, "outside").mean()) for width in widths}
    within = [width for width in widths if low <= means[width] <= high]
    return min(within, key=lambda width: abs(np.log(means[width] / AIM)), default=None)


def dense(results: Results, mover: str, rivals: Sequence[str]) -> list[Case]:
    """Return the ratios of errors outside of the regions, and of their multiples of those after even training."""
    # Errors are compared at equal parameters, in the mean of their logarithms over widths; multiples at the widths at
    # which each network has learned.

    def outside(kind: str, density: str, width: int) -> np.ndarray:
        return np.log(read_errors(results, CURVES[density], kind, width, "outside"))

    def rise(kind: str, width: int) -> np.ndarray:
        return outside(kind, DENSE, width) - outside(kind, EVEN, width)

    cases, widths, own = [], _widths(results, CURVES[DENSE]), learned(results, mover)
    for rival in rivals:
        logs = np.mean([outside(rival, DENSE, width) - outside(mover, DENSE, width) for width in widths], 0)
        cases.append(Case(f"{rival}, error", logs, logs))
        at = learned(results, rival)
        if at is None or own is None:
            unknown = np.full(2, np.inf)
            cases.append(Case(f"{rival}, rise, at no width", -unknown, unknown))
        else:
            rises = rise(rival, at) - rise(mover, own)
            cases.append(Case(f"{rival}, rise at {at} and {own}", rises, rises))
    return cases


def alike(results: Results, mover: str, rivals: Sequence[str]) -> list[Case]:
    """Return how much less rivals' outputs differ in some other prompt's region, in the mean over widths."""

    def slope(kind: str, width: int) -> np.ndarray:
        return np.log(read_errors(results, CURVES[DENSE], kind, width, "alike", "some other's"))

    widths = _widths(results, CURVES[DENSE])
    logs = {rival: np.mean([slope(mover, w) - slope(rival, w) for w in widths], 0) for rival in rivals}
    return [Case(rival, log, log) for rival, log in logs.items()]


def every(results: Results) -> list[Case]:
    """Return outside over inside after dense training, divided by the same after even training, of each network."""

    def ratio(kind: str, density: str) -> np.ndarray:
        outside, inside = (read_errors(results, CURVES[density], kind, TUNED, where) for where in ("outside", "inside"))
        return np.log(outside / inside)

    logs = {kind: ratio(kind, DENSE) - ratio(kind, EVEN) for kind in KINDS}
    return [Case(kind, log, log) for kind, log in logs.items()]


def reading(results: Results) -> Case:
    """Return the error of the best output independent of the prompt over that of the single layer, outside."""
    width, blind = _widths(results, CURVES[DENSE])[-1], results["blind"][CURVES[DENSE]]["blind"]["outside"]
    own = read_errors(results, CURVES[DENSE], FIXED, width, "outside")
    return known(f"{FIXED}, {width}", np.full_like(own, blind), own)


def rare(results: Results) -> Case:
    """Return the single layer's error outside over that after longer training."""
    longer = results["networks"][f"{CURVES[DENSE]}; {FIXED}; longer"]["seeds"]
    own = read_errors(results, CURVES[DENSE], FIXED, TUNED, "outside")
    return known(f"{FIXED}, {TUNED}", own, np.array([seed["outside"] for seed in longer]))


def verdicts(results: Results) -> list[str]:
    """Return the table of verdicts, each with the case that is worst for the prediction."""
    predictions = {"Few": few, "Length": length, "Dense": dense, "Alike": alike}
    rows = []
    for title, cases_of in predictions.items():
        for mover in MOVING:
            for group, rivals in GROUPS.items():
                cases = cases_of(results, mover, rivals)
                rows.append([title, mover, group, verdict(cases), least(cases)])
    opposite = {"All": every(results), "Reading": [reading(results)], "Rare, not fixed": [rare(results)]}
    rows += [[f"{title} (the opposite view)", "", "", verdict(of), least(of)] for title, of in opposite.items()]
    return table(["prediction", "network that moves", "against", "verdict", "worst case for it"], rows)
