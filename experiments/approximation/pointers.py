"""Errors on pointers by the number of steps, and on functions with jumps by size."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from duat_jax.display.pictures import styled
from experiments.approximation.tokens import JUMPS, MOST
from experiments.estimate import estimate
from experiments.generalization.picture import COLOURS
from experiments.run import frames_of

STYLES = {"1": ":", "2": "--", "4": "-"}
"""Of a line, by the number of layers."""


def pointers() -> dict[str, Any]:
    """Return the errors by the number of steps, and shares of points with an error above one half by size."""
    networks = frames_of("approximation_further")["networks"]
    trainings = {"pointers": 1, "pointers, four times as long": 4}
    return {
        "pointers": {title: _by_steps(networks[networks.times == times]) for title, times in trainings.items()},
        "jumps": {name: _by_size(networks[networks.task == name]) for name in JUMPS},
    }


def _by_steps(networks: pd.DataFrame) -> dict[str, Any]:
    of_pointers = networks[networks.task == "pointers"].groupby(["network", "layers"], sort=False)
    return {
        f"{network}; {layers}": [estimate([of[steps] for of in rows.steps])[:3] for steps in range(MOST)]
        for (network, layers), rows in of_pointers
    }


def _by_size(networks: pd.DataFrame) -> dict[str, Any]:
    return {
        network: [
            [int(parameters), *estimate(of.far.to_numpy())[:3]]
            for parameters, of in rows.groupby("parameters", sort=False)
        ]
        for network, rows in networks.groupby("network", sort=False)
    }


@styled
def draw_pointers(numbers: dict[str, Any]) -> Figure:
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
