"""The pictures at the top of the pages of results."""

from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.pictures.numbers import Numbers
from experiments.pictures.panels import OTHER, OURS, dots

OUR_METHODS = "secant", "collapse", "contributions"


def _colours(methods: Iterable[str]) -> dict[str, str]:
    return {method: OURS if method.startswith(OUR_METHODS) else OTHER for method in methods}


@styled
def draw_faithfulness(numbers: Numbers) -> Figure:
    """Draw how far every method is behind the secant, in both ways of removing tokens."""
    figure = Figure(figsize=(8.6, 5.2))
    titles = {"masked": "tokens masked out", "removed": "tokens really removed"}
    for axes, (removal, methods) in zip(figure.subplots(1, 2, sharey=True), numbers.items(), strict=True):
        dots(axes, methods, _colours(methods))
        axes.axvline(0, color=OURS, linewidth=1)
        axes.set_title(titles[removal])
        axes.set_xlabel("behind the secant by")
    return figure


@styled
def draw_circuits(numbers: Numbers) -> Figure:
    """Draw every method's cost and how much of the effect its circuits keep."""
    figure = Figure(figsize=(8.6, 4.2))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    order = sorted(numbers, key=lambda method: -numbers[method][1])
    dots(left, {method: numbers[method][1:] for method in order}, _colours(order))
    left.set_xlabel("effect that circuits keep, mean over six tasks (logf)")
    costs = {method: numbers[method][:1] * 3 for method in order}
    dots(right, costs, _colours(order), marker="s")
    right.set_xscale("log")
    right.set_xlim(1.5, None)
    right.set_xlabel("cost in plain forward passes")
    return figure


@styled
def draw_ground_truth(numbers: Numbers) -> Figure:
    """Draw how well every method ranks the units of a known circuit, for both read-outs."""
    figure = Figure(figsize=(8.2, 3.8))
    titles = {"alone": "one program is read", "ignoring": "both are read, one is ignored"}
    for axes, (read, methods) in zip(figure.subplots(1, 2, sharey=True), numbers.items(), strict=True):
        dots(axes, methods, _colours(methods))
        axes.axvline(0.5, color="black", linestyle=":")
        axes.set_xlim(0.2, 1.02)
        axes.set_title(titles[read])
        axes.set_xlabel("area under the ROC curve")
    return figure


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
