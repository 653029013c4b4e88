"""Errors on pointers by the number of steps, and on functions with jumps by size."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from duat_jax.display.pictures import styled
from duat_jax.evaluation.statistics import students_mean
from experiments.approximation.further_tables import of_steps, read_errors
from experiments.approximation.further_tables import pointers as networks_on_pointers
from experiments.approximation.tokens import JUMPS, MOST
from experiments.generalization.picture import COLOURS
from experiments.kept_results import kept
from experiments.pictures.numbers import Numbers

STYLES = {"1": ":", "2": "--", "4": "-"}
"""Of a line, by the number of layers."""


def pointers() -> Numbers:
    """Return the errors by the number of steps, and shares of points with an error above one half by size."""
    results = kept("approximation_further")
    trainings = {"pointers": False, "pointers, four times as long": True}
    return {
        "pointers": {title: _by_steps(results, longer) for title, longer in trainings.items()},
        "jumps": {name: _by_size(results, name) for name in JUMPS},
    }


def _by_steps(results: dict[str, Any], longer: bool) -> dict[str, Any]:
    return {
        "; ".join(key): [students_mean(of_steps(network, steps)) for steps in range(1, MOST + 1)]
        for key, network in networks_on_pointers(results, longer=longer).items()
    }


def _by_size(results: dict[str, Any], name: str) -> dict[str, list[list[float]]]:
    settings = results["settings"]
    return {
        kind: [
            [results["networks"][f"{name}; {kind}; {width}"]["parameters"], *students_mean(
                read_errors(results, f"{name}; {kind}; {width}", "far")
            )]
            for width in settings["widths"]
        ]
        for kind in settings["kinds"]
    }  # fmt: skip


@styled
def draw_pointers(numbers: Numbers) -> Figure:
    """Draw two panels of pointers, and one of each board."""
    figure = Figure(figsize=(14, 3.4), layout="constrained")
    panels = figure.subplots(1, len(numbers["pointers"]) + len(numbers["jumps"]))
    others = panels[len(numbers["pointers"]) :]
    for axes, (title, networks) in zip(panels, numbers["pointers"].items(), strict=False):
        for name, estimates in networks.items():
            kind, layers = name.split("; ")
            value, low, high = np.transpose(estimates)
            steps, label = range(1, len(value) + 1), f"{kind}, {layers} layer{'' if layers == '1' else 's'}"
            label = kind if kind == "one layer" else label
            axes.plot(steps, value, STYLES[layers], color=COLOURS[kind], label=label)
            axes.fill_between(steps, np.maximum(low, 0), high, color=COLOURS[kind], alpha=0.1, linewidth=0)
        axes.set(title=title, xlabel="steps", ylabel="error", xticks=range(1, MOST + 1), ylim=(0, 1))
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize="x-small", loc="outside right upper")
    for axes, (name, kinds) in zip(others, numbers["jumps"].items(), strict=True):
        for kind, rows in kinds.items():
            parameters, value, low, high = np.transpose(rows)
            axes.plot(parameters, value, "o-", color=COLOURS[kind], label=kind, markersize=3)
            axes.fill_between(parameters, np.maximum(low, 0), high, color=COLOURS[kind], alpha=0.15, linewidth=0)
        axes.set(title=name, xlabel="parameters", xscale="log", ylim=(0, 0.55))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set(ylabel="share of points with an error above ½" if axes is others[0] else "")
    return figure
