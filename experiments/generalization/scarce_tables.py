"""Tables of docs/findings/generalization.md on scarce capacity, longer prompts and dense regions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from experiments.generalization.curves import DENSE, EVEN
from experiments.generalization.networks import KINDS
from experiments.generalization.report import by_size, tuned
from experiments.generalization.scarce_verdicts import FEW, LENGTHS, TUNED, Results, every, read_errors, verdicts
from experiments.generalization.verdicts import Case, network_of
from experiments.markdown import interval, table

SLOPES = "some other's", "nobody's"


def _curves(results: Results) -> dict[str, list[int]]:
    """Return the widths of every study of curves."""
    return {study: results["settings"]["studies"][study][1] for study in results["blind"]}


def _row(seeds: list[dict[str, Any]]) -> list[str]:
    errors = (interval([seed[where] for seed in seeds]) for where in ("inside", "outside"))
    return [*errors, *(interval([seed["alike"][where] for seed in seeds]) for where in SLOPES)]


def regions(results: Results) -> list[str]:
    """Return the table of errors and slopes inside and outside of the regions."""
    rows = []
    for study, widths in _curves(results).items():
        for width in widths:
            for kind in KINDS:
                network = network_of(results, study, kind, width)
                rows.append([study, kind, str(width), f"{network['parameters']:,}", *_row(network["seeds"])])
        rows += [[study, f"*{name}*", "", "", *_row([of])] for name, of in results["blind"][study].items()]
    head = ["functions", "network", "width", "parameters", "error inside", "error outside"]
    return table([*head, *(f"slope, {where}" for where in SLOPES)], rows)


def rises(results: Results) -> list[str]:
    """Return the table of errors outside after dense training, as multiples of those after even training."""
    rows, widths = [], (4, 8, 16, 32)
    for name in ("curves", "4 curves"):
        for kind in KINDS:
            cells = []
            for width in widths:
                if f"{name}, {DENSE}; {kind}; {width}" in results["networks"]:
                    dense, even = (
                        read_errors(results, f"{name}, {density}", kind, width, "outside") for density in (DENSE, EVEN)
                    )
                    logs = np.log(dense / even)
                    cells.append(Case("", logs, logs).ratio().written(1))
            rows.append([name, kind, *cells, *[""] * (len(widths) - len(cells))])
    return table(["functions", "network", *(f"width {width}" for width in widths)], rows)


def each(results: Results) -> list[str]:
    """Return the table of the cases of the prediction that all networks have larger errors outside."""
    return table(["network", "ratio"], [[case.name, case.ratio().written(1)] for case in every(results)])


def longer(results: Results) -> list[str]:
    """Return the table of networks that trained longer on dense curves."""
    rows = []
    for name, network in results["networks"].items():
        if not name.endswith("longer"):
            continue
        study, kind, _ = name.split("; ")
        before = network_of(results, study, kind, TUNED)["seeds"]
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
    "Errors outside, dense training over even": rises,
    f"Outside over inside, dense training over even, width {TUNED}": each,
    "Dense regions, four times as long": longer,
    "Learning rates and norms of smaller networks": tuned,
}
"""The tables by their headings."""
