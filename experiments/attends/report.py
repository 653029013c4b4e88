"""Numbers of docs/how-to/attention.md on replaced sources, from the stored results of `experiments.attends.run`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from duat_jax.evaluation.statistics import IntervalEstimate, agreement, bootstrap
from experiments.attends.replaced import FREE, MOVING, RESAMPLED, ZERO
from experiments.markdown import Fields, cells, interval, table

Unit = dict[str, Any]
"""The measurements of one attention, as plain data."""

PREDICTED, PART, GRADIENT = "the explanation's prediction", "the explanation's part", "gradient times change"
RIVALS = {
    "length of the written vector": "norm",
    "length of its change": "change",
    "attention to its token": "attended",
    "at random": "lot",
}
"""Rankings that need no explanation, with the field of a unit that has them."""
NEAR = "at one of the three tokens (added afterwards)"
"""Sources at the query's token and at those of both keys before all others."""
EARLY = "the same, and the earliest layer first (added afterwards)"
"""A ranking without an explanation, too: embeddings and early MLPs at these tokens come first."""
LAST = 1000
"""More than any model has layers."""
RANKINGS = PREDICTED, PART, *RIVALS, NEAR, EARLY, GRADIENT
SETS = "drawn", "named", "both", "elsewhere"
"""The sources of a unit: drawn at random; with the largest parts; both; drawn, but at none of the three tokens."""
COLUMNS = (("drawn at random", "drawn", RESAMPLED), ("with the largest", "both", RESAMPLED), ("zero", "drawn", ZERO))
DISTANCES = {"1 layer before": (1, 1), "2 to 5 layers before": (2, 5), "6 or more layers before": (6, 99)}


def _scores(unit: Unit, replacement: str) -> dict[str, np.ndarray]:
    """Return the size that every ranking gives to each source."""
    sizes = {
        PREDICTED: unit["predicted"][replacement],
        PART: unit["part"],
        **{name: unit[field] for name, field in RIVALS.items()},
        NEAR: [token in _three(unit) for token in unit["tokens"]],
        EARLY: [LAST * (t in _three(unit)) + LAST - p for t, p in zip(unit["tokens"], unit["parts"], strict=True)],
        GRADIENT: unit["gradient"][replacement],
    }
    if replacement == ZERO:
        sizes["length of its change"] = unit["norm"]
    return {name: np.abs(np.array(of, float)) for name, of in sizes.items()}


def _three(unit: Unit) -> tuple[int, int, int]:
    return unit["query"], unit["key"], unit["contrast"]


def _of(unit: Unit, which: str) -> list[int]:
    if which == "elsewhere":
        return [i for i in unit["drawn"] if unit["tokens"][i] not in _three(unit)]
    return sorted({*unit["drawn"], *unit["named"]}) if which == "both" else unit[which]


def _measured(unit: Unit, replacement: str = RESAMPLED) -> np.ndarray:
    return np.array(unit["measured"][FREE] if replacement == RESAMPLED else unit["zero"], float)


def correlations(units: list[Unit], ranking: str, which: str, replacement: str = RESAMPLED) -> np.ndarray:
    """Return the rank correlation of a ranking with how much each source moves the attention, of every unit."""

    def correlation(unit: Unit) -> float:
        sources, moved = _of(unit, which), np.abs(_measured(unit, replacement))
        return agreement(_scores(unit, replacement)[ranking][sources], moved[sources])[0]

    return np.array([correlation(unit) for unit in units])


def _ratio(units: list[Unit], of: Callable[[Unit], tuple[float, float]]) -> IntervalEstimate:
    """Return the ratio of two sums over units, with its interval."""
    return bootstrap(np.array([of(unit) for unit in units]), lambda means: means[..., 0] / means[..., 1])


def _pairs(unit: Unit, replacement: str, sources: list[int], by: str = "predicted") -> tuple[np.ndarray, np.ndarray]:
    return np.array(unit[by][replacement])[sources], _measured(unit, replacement)[sources]


def _accuracy(
    units: list[Unit], replacement: str, sources_of: Callable[[Unit], list[int]], by: str = "predicted"
) -> Fields:
    """Return slope, share of the same sign, and size of the miss, of some sources' predictions or gradients."""

    def slope(unit: Unit) -> tuple[float, float]:
        predicted, measured = _pairs(unit, replacement, sources_of(unit), by)
        return float(predicted @ measured), float(predicted @ predicted)

    def sign(unit: Unit) -> tuple[float, float]:
        predicted, measured = _pairs(unit, replacement, sources_of(unit), by)
        # Two texts with the same token at one place may write the same vector there, which then changes nothing.
        return float((predicted * measured > 0).sum()), float((predicted * measured != 0).sum())

    def less(unit: Unit) -> tuple[float, float]:
        measured = _measured(unit, replacement)[sources_of(unit)]
        return float((measured < 0).sum()), float((measured != 0).sum())

    def ahead(unit: Unit) -> tuple[float, float]:
        (right, measured), (fewer, _) = sign(unit), less(unit)
        return right - fewer, measured

    def miss(unit: Unit) -> tuple[float, float]:
        predicted, measured = _pairs(unit, replacement, sources_of(unit), by)
        return float(np.abs(measured - predicted).sum()), float(np.abs(measured).sum())

    chosen = [unit for unit in units if sources_of(unit)]
    return {
        "slope": interval(_ratio(chosen, slope), 2),
        "same sign": _percent(_ratio(chosen, sign)),
        "less every time": _percent(_ratio(chosen, less)),
        "same sign, ahead of less every time": _percent(_ratio(chosen, ahead), "+"),
        "miss": _percent(_ratio(chosen, miss)),
        "sources": str(sum(len(sources_of(unit)) for unit in chosen)),
    }


def _percent(estimate: IntervalEstimate, sign: str = "") -> str:
    """Format a share with its interval, `64 [58, 70] %`, or with a sign a difference, `+5 [+2, +8] points`."""
    return IntervalEstimate(*(100 * number for number in estimate)).written(0, sign) + (" points" if sign else " %")


def decisive(results: dict[str, Any]) -> str:
    """Return the table of rank correlations."""
    columns = [(f"{name}: {title}", of["units"], *rest) for name, of in results.items() for title, *rest in COLUMNS]
    rows = [
        [ranking, *(interval(correlations(units, ranking, *rest), 2) for _, units, *rest in columns)]
        for ranking in RANKINGS
    ]
    return "\n".join(table(["sources ranked by", *(title for title, *_ in columns)], rows))


def _controls(unit: Unit, alike: bool) -> list[list[int]]:
    """Return sources with their controls; only those that both stand at one of the three tokens, or both don't."""
    near = [token in _three(unit) for token in unit["tokens"]]
    return [[source, control] for source, control in unit["controls"] if not alike or near[source] == near[control]]


def _of_controls(units: list[Unit], alike: bool) -> Fields:
    """Return how often, and how many times more, a source moves the attention than its control."""
    paired = [unit for unit in units if _controls(unit, alike)]

    def moved(unit: Unit) -> np.ndarray:
        return np.abs(_measured(unit))[np.array(_controls(unit, alike))]

    def wins(unit: Unit) -> tuple[float, float]:
        return float((moved(unit)[:, 0] > moved(unit)[:, 1]).sum()), float(len(moved(unit)))

    def sizes(unit: Unit) -> tuple[float, float]:
        source, control = moved(unit).sum(0)
        return float(source), float(control)

    return {
        "more": _percent(_ratio(paired, wins)),
        "times": interval(_ratio(paired, sizes), 1),
        "pairs": str(sum(len(moved(unit)) for unit in paired)),
    }


def _of_moving(units: list[Unit]) -> Fields:
    """Return what is left of the miss where only some of what is held moves as it does when nothing is held."""
    fields: Fields = {}
    for moving in MOVING:

        def left(unit: Unit, moving: str = moving) -> tuple[float, float]:
            sources = _of(unit, "both")
            predicted, measured = _pairs(unit, RESAMPLED, sources)
            again = np.array(unit["measured"][moving])[sources]
            return float(np.abs(measured - again).sum()), float(np.abs(measured - predicted).sum())

        fields[f"{moving} moving / of the miss"] = _percent(_ratio(units, left))
    return fields


def _distance(unit: Unit, nearest: int, farthest: int) -> list[int]:
    """Return the named MLPs that are so many layers before the head's layer."""
    layers = {i: unit["layer"] - (unit["parts"][i] - 1) for i in unit["named"] if unit["parts"][i] > 0}
    return [i for i, layers_before in layers.items() if nearest <= layers_before <= farthest]


def _embeddings(unit: Unit) -> list[int]:
    return [i for i in _of(unit, "both") if unit["parts"][i] == 0]


def numbers(results: dict[str, Any]) -> Fields:
    """Return the fields of the page."""
    text = decisive(results)
    fields: Fields = {"decisive": text, **cells("# Ranks\n" + text)}
    for name, of in results.items():
        units, found = of["units"], Fields()
        for which in SETS:
            ahead = correlations(units, PREDICTED, which)
            found |= {
                f"{which} / against {ranking}": interval(ahead - correlations(units, ranking, which), 2, "+")
                for ranking in RANKINGS[1:]
            }
            signed = [agreement(*_pairs(unit, RESAMPLED, _of(unit, which)))[0] for unit in units]
            found[f"{which} / sizes"] = interval(ahead, 2)
            found[f"{which} / with signs"] = interval(signed, 2)
            for replacement in (RESAMPLED, ZERO):
                accuracy = _accuracy(units, replacement, partial(_of, which=which))
                found |= {f"{which} / {replacement} / {key}": number for key, number in accuracy.items()}
        of_rest = _accuracy(units, RESAMPLED, lambda unit: [i for i in unit["named"] if unit["parts"][i] != 1])
        found |= {f"named, not the first MLP / {key}": number for key, number in of_rest.items()}
        missed = [np.abs(np.subtract(*_pairs(unit, RESAMPLED, unit["named"]))).sum() for unit in units]
        whole = [np.abs(_measured(unit)[unit["named"]]).sum() for unit in units]
        found["named / attentions that miss more than no change"] = f"{np.mean(np.greater(missed, whole)):.0%}"
        by_gradient = _accuracy(units, RESAMPLED, partial(_of, which="named"), "gradient")
        found |= {f"named / by gradients / {key}": number for key, number in by_gradient.items()}
        kinds: dict[str, Callable[[Unit], list[int]]] = {"embeddings": _embeddings}
        kinds |= {title: partial(_distance, nearest=a, farthest=b) for title, (a, b) in DISTANCES.items()}
        for title, sources_of in kinds.items():
            if any(map(sources_of, units)):
                accuracy = _accuracy(units, RESAMPLED, sources_of)
                found |= {f"{title} / {key}": number for key, number in accuracy.items()}
        for title, alike in (("controls", False), ("controls at alike tokens", True)):
            found |= {f"{title} / {key}": number for key, number in _of_controls(units, alike).items()}
        found |= _of_moving(units)
        found["farthest with norms held"] = f"{max(np.abs(unit['measured']['attention']).max() for unit in units):,.0f}"
        found["units"] = str(len(units))
        found["heads"] = str(len({(unit["layer"], unit["head"]) for unit in units}))
        of_first = [unit["parts"][i] == 1 for unit in units for i in unit["named"]]
        found["named / the first MLP"] = f"{np.mean(of_first):.0%}"
        found["error"] = f"{max(max(unit['error'], unit['explained']) for unit in units):.0e}"
        fields |= {f"{name} / {key}": value for key, value in found.items()}
    return fields
