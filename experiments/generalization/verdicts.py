"""The verdicts on the predictions of docs/findings/generalization.md, by the bounds that it states beforehand."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation.statistics import IntervalEstimate, students_mean
from experiments.generalization.networks import FIXED, KINDS, MOVING, WHOLE
from experiments.generalization.tasks import FAMILIES, Named
from experiments.markdown import table

Results = dict[str, Any]
EQUAL, RARE, MANY = "16 functions", "16 functions, unequal", ("64 functions", "256 functions", "64 dense functions")
TARGET, FLOOR = 0.05, 0.02
"""The error that networks shall reach, and the one below which errors count as equal."""
CONFIRMED, REFUTED = 2.0, 1.2
"""The ratios from which on a prediction is confirmed, and up to which it is refuted."""
GROUPS = {"one layer": WHOLE, "fixed mixing": FIXED}


class Case(NamedTuple):
    """The logarithm of a rival's number over that of a network whose mixing moves, of every seed.

    Args:
        name: what was compared.
        low: a lower bound of every seed, `[seeds]`.
        high: an upper bound of every seed; the same numbers where they are known.
    """

    name: str
    low: Float[np.ndarray, "seeds"]
    high: Float[np.ndarray, "seeds"]

    def ratio(self) -> IntervalEstimate:
        """Return the ratio, of which the lower bound is known, with its interval."""
        low, high = (
            students_mean(bound) if np.isfinite(bound).all() else IntervalEstimate(*3 * (float(bound.sum()),))
            for bound in (self.low, self.high)
        )
        return IntervalEstimate(*np.exp([low.value, low.low, high.high]).tolist())


def present(results: Results) -> list[str]:
    """Return the names of the studies of which all networks are trained."""
    return [
        study
        for study, (_, widths, *_) in results["settings"]["studies"].items()
        if all(f"{study}; {kind}; {width}" in results["networks"] for kind in KINDS for width in widths)
    ]


def network_of(results: Results, study: str, kind: str, width: int | None = None) -> dict[str, Any]:
    """Return the measurements of a network."""
    width = max(results["settings"]["studies"][study][1]) if width is None else width
    network: dict[str, Any] = results["networks"][f"{study}; {kind}; {width}"]
    return network


def errors(results: Results, study: str, kind: str, width: int | None = None) -> Float[np.ndarray, "seeds"]:
    """Return the error of every seed of a network."""
    return np.array([seed["error"] for seed in network_of(results, study, kind, width)["seeds"]])


def needed(
    parameters: Float[np.ndarray, "sizes"], error: Float[np.ndarray, "sizes"], target: float
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


def sizes_needed(results: Results, study: str, kind: str) -> Float[np.ndarray, "seeds bounds"]:
    """Return bounds of the number of parameters that each seed of a network needs for the target error."""
    widths = results["settings"]["studies"][study][1]
    parameters = np.array([network_of(results, study, kind, width)["parameters"] for width in widths], float)
    by_seed = np.array([errors(results, study, kind, width) for width in widths]).T
    return np.array([needed(parameters, of_seed, TARGET) for of_seed in by_seed])


def quarters(results: Results, kind: str, study: str) -> Float[np.ndarray, "quarters seeds"]:
    """Return the error on every quarter of the sixteen functions, from the most frequent to the rarest in `RARE`."""
    order = np.argsort(-np.asarray(Named(**results["settings"]["studies"][RARE][0]).shares()))
    squares = np.array([seed["by function"] for seed in network_of(results, study, kind)["seeds"]]) ** 2
    return np.sqrt(squares[:, order].reshape(len(squares), 4, -1).mean(-1)).T


def known(name: str, rival: Float[np.ndarray, "seeds"], mover: Float[np.ndarray, "seeds"]) -> Case:
    """Return the case of two errors, which are equal below the floor."""
    ratio = np.log(np.maximum(rival, FLOOR) / np.maximum(mover, FLOOR))
    return Case(name, ratio, ratio)


def many(results: Results, mover: str, rivals: Sequence[str]) -> list[Case]:
    """Return the parameters that rivals need for the target; where the mover doesn't reach it, their errors."""
    cases = []
    for study in MANY:
        own = sizes_needed(results, study, mover)
        for rival in rivals:
            name = f"{rival}, {study}"
            if np.isinf(own).any():
                cases.append(known(f"{name} (errors)", errors(results, study, rival), errors(results, study, mover)))
                continue
            of_rival = sizes_needed(results, study, rival)
            with np.errstate(divide="ignore"):
                cases.append(Case(name, np.log(of_rival[:, 0] / own[:, 1]), np.log(of_rival[:, 1] / own[:, 0])))
    return cases


def rare(results: Results, mover: str, rivals: Sequence[str]) -> list[Case]:
    """Return the errors on the rarest quarter, and how much larger they are than where all are equally frequent."""
    last, rise = {}, {}
    for kind in (mover, *rivals):
        last[kind] = quarters(results, kind, RARE)[-1]
        rise[kind] = last[kind] / np.maximum(quarters(results, kind, EQUAL)[-1], FLOOR)
    return [
        case
        for rival in rivals
        for case in (
            known(f"{rival}, error", last[rival], last[mover]),
            Case(f"{rival}, rise", *2 * (np.log(rise[rival] / rise[mover]),)),
        )
    ]


def new(results: Results, mover: str, rivals: Sequence[str]) -> list[Case]:
    """Return the errors on new functions after as many demonstrations as training had."""
    return [
        known(f"{rival}, {family}", errors(results, family, rival), errors(results, family, mover))
        for family in FAMILIES
        for rival in rivals
    ]


def longer(results: Results, mover: str) -> list[Case]:
    """Return the errors after 32 demonstrations over those after 16."""
    seeds = {family: network_of(results, family, mover)["seeds"] for family in FAMILIES}
    of = {family: [np.array([s["by count"][n] for s in seeds[family]]) for n in ("32", "16")] for family in FAMILIES}
    return [known(family, *both) for family, both in of.items()]


def more_training(results: Results, mover: str) -> list[Case]:
    """Return the errors of the closest network of fixed mixing, trained four times as long."""
    return [
        known(
            f"{network['sizes']['kind']}, {study}",
            np.array([seed["error"] for seed in network["seeds"]]),
            errors(results, study, mover),
        )
        for study, network in (
            (name.partition(";")[0], of) for name, of in results["networks"].items() if "longer" in name
        )
    ]


def verdict(cases: Sequence[Case], confirmed: float = CONFIRMED, refuted: float = REFUTED) -> str:
    """Return the verdict that a ratio is large: confirmed in all cases, refuted in one, or open."""
    ratios = [case.ratio() for case in cases]
    if all(ratio.low >= confirmed for ratio in ratios):
        return "confirmed"
    return "refuted" if any(ratio.high <= refuted for ratio in ratios) else "open"


def verdict_of_small(cases: Sequence[Case], refuted: float) -> str:
    """Return the verdict that a ratio is at most one: confirmed in all cases, refuted in one, or open."""
    ratios = [case.ratio() for case in cases]
    if all(ratio.high <= 1 for ratio in ratios):
        return "confirmed"
    return "refuted" if any(ratio.low > refuted for ratio in ratios) else "open"


def least(cases: Sequence[Case]) -> str:
    """Return the name of the case that is worst for the prediction of a large ratio, and the ratio."""
    # It is the smallest one that refutes it, or else the one with the smallest lower end.
    refuting = [case for case in cases if case.ratio().high <= REFUTED]
    case = min(refuting or cases, key=lambda case: case.ratio().high if refuting else case.ratio().low)
    return f"{case.name}: {case.ratio().written(2)}"


def _most(cases: Sequence[Case]) -> str:
    case = max(cases, key=lambda case: case.ratio().low)
    return f"{case.name}: {case.ratio().written(2)}"


MISSING = "not run yet"


def verdicts(results: Results) -> list[str]:
    """Return the table of verdicts, each with the case that is worst for the prediction."""
    rows, there = [], {*present(results), *results["networks"]}
    large: dict[str, tuple[Callable[..., list[Case]], Iterable[str]]] = {
        "Many": (many, MANY),
        "Rare": (rare, (RARE, EQUAL)),
        "New": (new, FAMILIES),
    }
    for title, (cases_of, studies) in large.items():
        for mover in MOVING:
            for group, rivals in GROUPS.items():
                cases = cases_of(results, mover, rivals) if there.issuperset(studies) else []
                rows.append([title, mover, group, *([verdict(cases), least(cases)] if cases else [MISSING, ""])])
    trained = [f"{study}; longer" for study in results["settings"]["longer"]]
    small: dict[str, tuple[Callable[..., list[Case]], Iterable[str], str, float]] = {
        "Longer": (longer, FAMILIES, "itself after 16", 1.0),
        "More training (the opposite view)": (more_training, trained, "the closest, four times as long", REFUTED),
    }
    for title, (cases_of, studies, rival, bound) in small.items():
        for mover in MOVING:
            cases = cases_of(results, mover) if there.issuperset(studies) else []
            said = [verdict_of_small(cases, bound), _most(cases)] if cases else [MISSING, ""]
            rows.append([title, mover, rival, *said])
    return table(["prediction", "network that moves", "against", "verdict", "worst case for it"], rows)
