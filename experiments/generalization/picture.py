"""Pictures of errors: of every network on functions that a prompt gives, and inside and outside of dense regions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.generalization.curves import WIDTH
from experiments.generalization.networks import KINDS, MOVING
from experiments.pictures.panels import OTHER, OURS, dots

COLOURS = dict(zip(KINDS, ("black", "0.75", "C2", "C0", "C4", "C1", "C3"), strict=True))


@styled
def draw_errors(numbers: Mapping[str, Any]) -> Figure:
    """Draw the error of every network on functions that prompts name, and on those that they demonstrate."""
    figure = Figure(figsize=(8.6, 4.6))
    panels = figure.subplots(2, len(numbers) // 2, sharex=True, sharey=True).ravel()
    for axes, (study, networks) in zip(panels, numbers.items(), strict=True):
        dots(axes, networks, {kind: OURS if kind in MOVING else OTHER for kind in networks})
        axes.set_title(study)
        axes.set_xscale("log")
    figure.supxlabel("error (root mean square)", fontsize="medium")
    return figure


def _draw_outputs(axes: Axes, numbers: Mapping[str, Any], name: str) -> None:
    for i, (target, written) in enumerate(zip(numbers["outputs"]["functions"], numbers["outputs"][name], strict=True)):
        centre = numbers["centres"][i]
        axes.axvspan(centre - WIDTH / 2, centre + WIDTH / 2, color=f"C{i}", alpha=0.12, linewidth=0)
        axes.plot(numbers["x"], target, ":", color=f"C{i}", linewidth=1)
        axes.plot(numbers["x"], written, color=f"C{i}", linewidth=1.4)
    axes.set(title=name, xlabel="number", ylim=(-3, 3))


@styled
def draw_dense_regions(numbers: Mapping[str, Any]) -> Figure:
    """Draw functions that prompts name with the outputs of networks, and their errors by size."""
    figure = Figure(figsize=(11.0, 6.6))
    above, below = figure.subplots(2, 3, sharey="row")
    _, *shown = numbers["outputs"]
    for axes, name in zip(above, shown, strict=True):
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
