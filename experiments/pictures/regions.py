"""The papers' Figure 2 from measurements: networks trained where most numbers are in a region that the prompt names."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.generalization.curves import DENSE, EVEN, WIDTH
from experiments.generalization.networks import KINDS
from experiments.generalization.picture import COLOURS
from experiments.generalization.verdicts import network_of
from experiments.kept_results import kept
from experiments.pictures.numbers import Numbers

SHOWN, SHOWN_WIDTH = ("one layer", "transformer"), 8
"""The networks whose outputs are drawn, and the width of the Transformer that they are as large as."""
BLIND = "the best that doesn't read the prompt"


def dense_regions() -> Numbers:
    """Return functions with networks' outputs, and errors inside and outside of the regions by size."""
    results = kept("generalization_scarce")
    kept_of, networks = results["drawn"], results["networks"]
    outputs = {kind: networks[f"4 curves, {DENSE}; {kind}; {SHOWN_WIDTH}"]["seeds"][0]["outputs"] for kind in SHOWN}
    return {
        "x": kept_of["x"],
        "centres": kept_of["centres"],
        "outputs": {"functions": kept_of["functions"], BLIND: kept_of["blind"]} | outputs,
        "errors": {
            "outside, even training": _by_size(results, EVEN, "outside"),
            "outside, dense training": _by_size(results, DENSE, "outside"),
            "inside, dense training": _by_size(results, DENSE, "inside"),
        },
    }


def _by_size(results: dict[str, Any], density: str, where: str) -> dict[str, list[list[float]]]:
    """Return the number of parameters and the mean error of each size, by network."""
    study = f"curves, {density}"
    widths = results["settings"]["studies"][study][1]
    networks = {kind: [network_of(results, study, kind, width) for width in widths] for kind in KINDS}
    return {
        kind: [[of["parameters"], float(np.mean([seed[where] for seed in of["seeds"]]))] for of in by_width]
        for kind, by_width in networks.items()
    }


def _draw_outputs(axes: Axes, numbers: Numbers, name: str) -> None:
    for i, (target, written) in enumerate(zip(numbers["outputs"]["functions"], numbers["outputs"][name], strict=True)):
        centre = numbers["centres"][i]
        axes.axvspan(centre - WIDTH / 2, centre + WIDTH / 2, color=f"C{i}", alpha=0.12, linewidth=0)
        axes.plot(numbers["x"], target, ":", color=f"C{i}", linewidth=1)
        axes.plot(numbers["x"], written, color=f"C{i}", linewidth=1.4)
    axes.set(title=name, xlabel="number", ylim=(-3, 3))


@styled
def draw_dense_regions(numbers: Numbers) -> Figure:
    """Draw functions that prompts name with the outputs of networks, and their errors by size."""
    figure = Figure(figsize=(11.0, 6.6))
    above, below = figure.subplots(2, 3, sharey="row")
    for axes, name in zip(above, (BLIND, *SHOWN), strict=True):
        _draw_outputs(axes, numbers, name)
    for axes, (title, of_kinds) in zip(below, numbers["errors"].items(), strict=True):
        for kind, of_sizes in of_kinds.items():
            parameters, error = np.transpose(of_sizes)
            axes.plot(parameters, error, color=COLOURS[kind], marker=".", label=kind)
        axes.set(title=title, xlabel="parameters", xscale="log", yscale="log")
    above[0].set_ylabel("output")
    below[0].set_ylabel("error")
    handles, labels = below[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7, fontsize="small")
    return figure
