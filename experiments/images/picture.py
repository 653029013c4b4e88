"""The picture of how far parameters of two networks move from one image to another."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.pictures.panels import OURS, PALE


@styled
def draw_changes(numbers: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw how far the parameters of both networks move from one image to another."""
    figure = Figure(figsize=(7.4, 2.9))
    axes = figure.subplots()
    parameters = list(next(iter(numbers.values())))
    for offset, colour, (network, changes) in zip((-0.2, 0.2), (PALE, OURS), numbers.items(), strict=True):
        places = np.arange(len(parameters)) + offset
        axes.barh(places, list(changes.values()), 0.38, color=colour, label=network)
        for place, value in zip(places, changes.values(), strict=True):
            axes.text(value + 1, place, f"{value:.0f} %", va="center", fontsize="small")
    labels = [f"${parameter[0]}${parameter[1:]}" for parameter in parameters]
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("mean change from one image to another")
    axes.set_xlim(0, 170)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return figure
