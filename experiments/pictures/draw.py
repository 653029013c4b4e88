"""The pictures at the top of the pages of results."""

import numpy as np
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.pictures.numbers import Numbers
from experiments.pictures.panels import OTHER, OURS


@styled
def draw_families(numbers: Numbers) -> Figure:
    """Draw the largest difference to the reference implementation of every checkpoint, by family and precision."""
    figure = Figure(figsize=(7.2, 5.6))
    axes = figure.subplots()
    for column, colour in (("float64", OURS), ("float32", OTHER)):
        points = [(error, place) for place, family in enumerate(numbers.values()) for error in family[column]]
        axes.plot(*np.array(points).T, ".", color=colour, alpha=0.5, label=column)
    axes.set_xscale("log")
    axes.set_yticks(range(len(numbers)), list(numbers))
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("largest difference to Hugging Face transformers, of the largest entry")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return figure


@styled
def draw_long_context(numbers: Numbers) -> Figure:
    """Draw what is read of long texts by distance, and what replaced tokens change."""
    figure = Figure(figsize=(10.4, 3.8))
    read, changed, lost = figure.subplots(1, 3)
    colours = {"SmolLM2-135M": OURS, "the text": OURS, "shuffled text": OTHER, "equal shares": "black"}
    for axes, lines in ((read, numbers["read"]), (changed, numbers["changed"]), (lost, {"": numbers["lost"]})):
        for name, of in lines.items():
            values = np.array(list(of.values()))
            axes.errorbar(
                range(len(values)),
                values[:, 0],
                np.abs(values[:, 1:] - values[:, :1]).T,
                fmt=".-",
                color=colours.get(name, OURS),
                label=name,
            )
        axes.set_xticks(range(len(numbers["read"]["SmolLM2-135M"])), list(numbers["read"]["SmolLM2-135M"]), rotation=60)
        axes.set_xlabel("distance in tokens")
    read.set(ylabel="share of what is written, in %", title="read, without the first token")
    changed.set(yscale="log", ylabel="divergence, thousandths of a nat", title="16 tokens replaced")
    lost.set(yscale="log", ylabel="loss, thousandths of a nat", title="three quarters replaced")
    for axes in (read, changed):
        axes.legend(fontsize="small")
    return figure
