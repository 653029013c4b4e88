"""Tables of docs/generalization.md on scarce capacity, longer prompts and dense regions, from the stored results."""

from collections.abc import Callable
from functools import partial
from typing import Any

from experiments.generalization.networks import KINDS
from experiments.generalization.report import by_size, tuned
from experiments.generalization.scarce_verdicts import FEW, LENGTHS, Results, verdicts
from experiments.generalization.verdicts import network_of
from experiments.pages import interval, table

SLOPES = "some other's", "nobody's"


def _curves(results: Results) -> dict[str, list[int]]:
    """Return the widths of every study of curves."""
    return {study: results["settings"]["studies"][study][1] for study in results["blind"]}


def _row(seeds: list[dict[str, Any]]) -> list[str]:
    errors = (interval([seed[where] for seed in seeds]) for where in ("inside", "outside"))
    return [*errors, *(interval([seed["alike"][where] for seed in seeds]) for where in SLOPES)]


def regions(results: Results) -> list[str]:
    """Return the table of errors and slopes inside and outside of the regions.

    Args:
        results: what was kept.
    """
    rows = []
    for study, widths in _curves(results).items():
        for width in widths:
            for kind in KINDS:
                network = network_of(results, study, kind, width)
                rows.append([study, kind, str(width), f"{network['parameters']:,}", *_row(network["seeds"])])
        rows += [[study, f"*{name}*", "", "", *_row([of])] for name, of in results["blind"][study].items()]
    head = ["functions", "network", "width", "parameters", "error inside", "error outside"]
    return table([*head, *(f"slope, {where}" for where in SLOPES)], rows)


def longer(results: Results) -> list[str]:
    """Return the table of networks that trained longer on dense curves.

    Args:
        results: what was kept.
    """
    rows = []
    for name, network in results["networks"].items():
        if not name.endswith("longer"):
            continue
        study, kind, _ = name.split("; ")
        before = network_of(results, study, kind, 16)["seeds"]
        numbers = (
            [seed[where] for seed in seeds] for where in ("inside", "outside") for seeds in (before, network["seeds"])
        )
        rows.append([kind, *map(interval, numbers)])
    steps = ("as long as others", "four times as long")
    return table(["network", *(f"{where}, {how}" for where in ("inside", "outside") for how in steps)], rows)


SECTIONS: dict[str, Callable[[Results], list[str]]] = {
    "Verdicts on scarce capacity": verdicts,
    "Few functions and longer prompts by size": partial(by_size, studies=(*FEW, *LENGTHS.values())),
    "Inside and outside of dense regions": regions,
    "Dense regions, four times as long": longer,
    "Learning rates and norms of smaller networks": tuned,
}
"""The tables by their headings."""
