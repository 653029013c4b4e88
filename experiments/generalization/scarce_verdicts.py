"""The verdicts on the predictions about scarce capacity, longer prompts and dense regions, by the page's rules."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

import numpy as np
from jaxtyping import Float

from experiments.generalization.curves import DENSE, EVEN
from experiments.generalization.networks import KINDS, MOVING
from experiments.generalization.padded import CONSTANT, MARKED, RANDOM
from experiments.generalization.verdicts import (
    CONFIRMED,
    FLOOR,
    GROUPS,
    REFUTED,
    Case,
    errors,
    known,
    least,
    network_of,
    sizes_needed,
    verdict,
)
from experiments.pages import table

Results = dict[str, Any]
FEW = "4 functions", "16 functions"
LENGTHS = {filling: f"6 further tokens, {filling}" for filling in (CONSTANT, RANDOM, MARKED)}
CURVES = {density: f"curves, {density}" for density in (EVEN, DENSE)}
LEARNED = 0.03, 0.4
"""The errors after even training between which a multiple of them says something."""
TUNED = 16
"""The width at which curves were tuned."""
FIXED = "one layer"


def of(results: Results, study: str, kind: str, width: int, *keys: str) -> Float[np.ndarray, "seeds"]:
    """Return a number of every seed, at least `FLOOR`.

    Args:
        results: what was kept.
        study: its name.
        kind: the network's name.
        width: of the Transformer that it is as large as.
        keys: where the number stands in the measurements.
    """
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


def _or_errors(case: Case, of_errors: Case) -> Case:
    """Return a case, or that of errors where the first one is undecided for want of bounds."""
    ratio, bounded = case.ratio(), np.isfinite([case.low, case.high]).all()
    return case if bounded or ratio.low >= CONFIRMED or ratio.high <= REFUTED else of_errors


def few(results: Results, mover: str, rivals: Sequence[str]) -> list[Case]:
    """Return the ratios of the parameters for the target, or of errors at the middle width.

    Args:
        results: what was kept.
        mover: a network whose mixing moves.
        rivals: others.
    """
    cases = []
    for study in FEW:
        low, high = _needed(results, study, mover)
        own = errors(results, study, mover, _widths(results, study)[1])
        for rival in rivals:
            rival_low, rival_high = _needed(results, study, rival)
            name, rival_error = f"{rival}, {study}", errors(results, study, rival, _widths(results, study)[1])
            case = Case(name, rival_low - high, rival_high - low)
            cases.append(_or_errors(case, known(f"{name} (errors)", rival_error, own)))
    return cases


def length(results: Results, mover: str, rivals: Sequence[str]) -> list[Case]:
    """Return the ratios of two multiples: parameters with further tokens over those with constant ones.

    Args:
        results: what was kept.
        mover: a network whose mixing moves.
        rivals: others.
    """

    def multiple(kind: str, filling: str) -> tuple[np.ndarray, np.ndarray]:
        (low, high), (low_before, high_before) = (_needed(results, LENGTHS[of], kind) for of in (filling, CONSTANT))
        return low - high_before, high - low_before

    def rise(kind: str, filling: str) -> np.ndarray:
        middle = _widths(results, LENGTHS[filling])[1]
        after, before = (of(results, LENGTHS[which], kind, middle, "error") for which in (filling, CONSTANT))
        return np.log(after / before)

    cases = []
    for filling in (RANDOM, MARKED):
        low, high = multiple(mover, filling)
        for rival in rivals:
            (rival_low, rival_high), name = multiple(rival, filling), f"{rival}, {filling}"
            logs = rise(rival, filling) - rise(mover, filling)
            case = Case(name, rival_low - high, rival_high - low)
            cases.append(_or_errors(case, Case(f"{name} (errors)", logs, logs)))
    return cases


def learned(results: Results, *kinds: str) -> list[int]:
    """Return the widths at which all of some networks learn curves after even training, and not perfectly.

    Args:
        results: what was kept.
        kinds: the networks' names.
    """
    low, high = LEARNED

    def mean(kind: str, width: int) -> float:
        return float(of(results, CURVES[EVEN], kind, width, "outside").mean())

    return [
        width for width in _widths(results, CURVES[EVEN]) if all(low <= mean(kind, width) <= high for kind in kinds)
    ]


def _over(name: str, of_widths: Mapping[int, np.ndarray]) -> Case:
    """Return the case of a mean of logarithms over widths, undecided if there are none."""
    if not of_widths:
        unknown = np.full(2, np.inf)
        return Case(f"{name}, at no width", -unknown, unknown)
    logs = np.mean(list(of_widths.values()), 0)
    return Case(f"{name}, {' and '.join(map(str, of_widths))}", logs, logs)


def dense(results: Results, mover: str, rivals: Sequence[str]) -> list[Case]:
    """Return the ratios of errors outside of the regions, and of their multiples of those after even training.

    Args:
        results: what was kept.
        mover: a network whose mixing moves.
        rivals: others.
    """

    def apart(rival: str, density: str, width: int) -> np.ndarray:
        own, others = (of(results, CURVES[density], kind, width, "outside") for kind in (mover, rival))
        return np.log(others / own)

    cases = []
    for rival in rivals:
        error = {width: apart(rival, DENSE, width) for width in learned(results, rival, mover)}
        rise = {width: log - apart(rival, EVEN, width) for width, log in error.items()}
        cases += [_over(f"{rival}, error", error), _over(f"{rival}, rise", rise)]
    return cases


def alike(results: Results, mover: str, rivals: Sequence[str]) -> list[Case]:
    """Return how much less rivals' outputs differ in some other prompt's region.

    Args:
        results: what was kept.
        mover: a network whose mixing moves.
        rivals: others.
    """

    def slope(kind: str, width: int) -> np.ndarray:
        return of(results, CURVES[DENSE], kind, width, "alike", "some other's")

    return [
        _over(rival, {w: np.log(slope(mover, w) / slope(rival, w)) for w in learned(results, rival, mover)})
        for rival in rivals
    ]


def every(results: Results) -> list[Case]:
    """Return outside over inside after dense training, divided by the same after even training, of each network.

    Args:
        results: what was kept.
    """

    def ratio(kind: str, density: str) -> np.ndarray:
        outside, inside = (of(results, CURVES[density], kind, TUNED, where) for where in ("outside", "inside"))
        return np.log(outside / inside)

    logs = {kind: ratio(kind, DENSE) - ratio(kind, EVEN) for kind in KINDS}
    return [Case(kind, log, log) for kind, log in logs.items()]


def reading(results: Results) -> Case:
    """Return the error of the best output independent of the prompt over that of the single layer, outside.

    Args:
        results: what was kept.
    """
    width, blind = _widths(results, CURVES[DENSE])[-1], results["blind"][CURVES[DENSE]]["blind"]["outside"]
    own = of(results, CURVES[DENSE], FIXED, width, "outside")
    return known(f"{FIXED}, {width}", np.full_like(own, blind), own)


def rare(results: Results) -> Case:
    """Return the single layer's error outside over that after longer training.

    Args:
        results: what was kept.
    """
    longer = results["networks"][f"{CURVES[DENSE]}; {FIXED}; longer"]["seeds"]
    own = of(results, CURVES[DENSE], FIXED, TUNED, "outside")
    return known(f"{FIXED}, {TUNED}", own, np.array([seed["outside"] for seed in longer]))


def verdicts(results: Results) -> list[str]:
    """Return the table of verdicts, each with the case that is worst for the prediction.

    Args:
        results: what was kept.
    """
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
