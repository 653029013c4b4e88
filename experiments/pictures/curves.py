"""Pictures of numbers by layer: curves with their intervals."""

import numpy as np
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.pictures.numbers import Numbers
from experiments.pictures.panels import OTHER, OURS, PALE


@styled
def draw_by_layer(numbers: Numbers) -> Figure:
    """Draw panels with a curve for each name over the layers, and its intervals as a band."""
    figure = Figure(figsize=(10.4, 3.4))
    panels = figure.subplots(1, len(numbers), squeeze=False)[0]
    for axes, (title, (axis, curves)) in zip(panels, numbers.items(), strict=True):
        for colour, (name, estimates) in zip((OURS, OTHER, PALE), curves.items(), strict=False):
            value, low, high = np.transpose(estimates)
            axes.plot(value, color=colour, label=name)
            axes.fill_between(range(len(value)), low, high, color=colour, alpha=0.2, linewidth=0)
        axes.axhline(0, color="black", linewidth=0.5)
        axes.set(title=title, xlabel="layer", ylabel=axis)
        axes.legend(fontsize="small")
    return figure
