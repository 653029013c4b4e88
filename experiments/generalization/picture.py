"""Picture of the errors of networks in three studies."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.generalization.networks import KINDS, MOVING
from experiments.generalization.report import by_count
from experiments.generalization.tasks import FAMILIES
from experiments.generalization.verdicts import EQUAL, RARE, errors, present, quarters

COLOURS = dict(zip(KINDS, ("black", "0.75", "C2", "C0", "C4", "C1", "C3"), strict=True))
PROMPT_NAMES = "4 functions", EQUAL, "64 functions", "256 functions"


def _lines(axis: Axes, places: Any, of_kinds: dict[str, np.ndarray]) -> None:
    for kind, of_seeds in of_kinds.items():
        mean = of_seeds.mean(0)
        axis.plot(places, mean, color=COLOURS[kind], marker=".", linewidth=2 if kind in MOVING else 1, label=kind)
        axis.fill_between(places, of_seeds.min(0), of_seeds.max(0), color=COLOURS[kind], alpha=0.15, linewidth=0)
    axis.set_yscale("log")


@styled
def draw_errors(results: dict[str, Any]) -> Figure:
    """Plot the errors of every network: by the number of functions, by their frequency, and by demonstrations."""
    families = [family for family in FAMILIES if family in present(results)]
    columns = 3 if families else 2
    rows = -(-(2 + len(families)) // columns)
    figure = Figure(figsize=(11, 3.2 * rows + 0.5))
    named, rare, *demonstrated = figure.subplots(rows, columns).ravel()
    numbers = [int(study.partition(" ")[0]) for study in PROMPT_NAMES]
    _lines(
        named, numbers, {kind: np.array([errors(results, study, kind) for study in PROMPT_NAMES]).T for kind in KINDS}
    )
    named.plot(
        numbers, [results["blind"][study] for study in PROMPT_NAMES], ":", color="black", label="blind to the prompt"
    )
    named.set_xscale("log", base=4)
    named.set_xticks(numbers, [str(number) for number in numbers])
    named.set(title="Functions that a prompt names", xlabel="number of functions", ylabel="error")
    _lines(rare, range(4), {kind: quarters(results, kind, RARE).T for kind in KINDS})
    rare.set_xticks(range(4), ["most frequent", "second", "third", "rarest"])
    rare.set(title="16 functions, frequent and rare", xlabel="quarter of the functions")
    for axis in demonstrated[len(families) :]:
        axis.remove()
    for axis, family in zip(demonstrated, families, strict=False):
        of_kinds = {kind: by_count(results, family, kind) for kind in KINDS}
        counts = list(of_kinds[KINDS[0]])
        _lines(
            axis,
            [int(count) for count in counts],
            {kind: np.array(list(of.values())).T for kind, of in of_kinds.items()},
        )
        axis.axvline(16, linestyle=":", color="black")
        axis.set_xscale("log", base=2)
        axis.set_xticks([int(count) for count in counts], counts)
        axis.set(title=f"Demonstrated: {family}", xlabel="demonstrations")
        axis.set_ylabel("error")
    handles, labels = named.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small")
    return figure
