"""The picture of the difference between two models."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from duat_jax.display.pictures import (
    HEADING,
    add_colour_bar,
    colour_scale,
    draw_heat,
    label_tokens,
    styled,
    titled,
    wrapped,
)
from duat_jax.display.shown_tokens import tokens_of_picture
from duat_jax.display.tables import token_label
from duat_jax.weights.result import ATTENTION, FIRST_ORDER, MLP, OTHER, Flow, ModelDiff

COLOURS = {ATTENTION: "tab:blue", MLP: "tab:orange", OTHER: "tab:gray"}
NAMES = {ATTENTION: "attention", MLP: "MLP", OTHER: "norms and other"}


@styled
def draw(diff: ModelDiff) -> Figure:
    """Plot the parts by layer, those of the largest parameters beside runs of the model, and of one text the flow.

    Args:
        diff: the result to plot.
    """
    rows = max(len(diff.layers), len(diff.again))
    widths = [4.5, *([4.0] if diff.again else []), *([2.0 + 0.3 * len(diff.tokens)] if diff.flow else [])]
    figure = Figure(figsize=(min(26.0, 1.5 + sum(widths)), 2.0 + 0.26 * max(rows, 8)))
    of_layers, *others = np.atleast_1d(figure.subplots(1, len(widths), width_ratios=widths))
    draw_panel(of_layers, diff)
    if diff.again:
        _draw_again(others.pop(0), diff)
    if diff.flow is not None:
        _draw_flow(others.pop(0), diff, diff.flow)
    titled(
        figure,
        f"{diff.target.headline}: {diff.value:+z.4f} by the model − {diff.reference_value:+z.4f} by the reference",
    )
    return figure


def draw_panel(axes: Axes, diff: ModelDiff) -> None:
    """Draw the parts by layer.

    Args:
        axes: where.
        diff: the result to plot.
    """
    layers = {name: {column: float(np.mean(part)) for column, part in row.items()} for name, row in diff.layers.items()}
    places = np.arange(len(layers))[::-1]
    for k, (column, colour) in enumerate(COLOURS.items()):
        axes.barh(
            places + 0.27 * (1 - k), [row[column] for row in layers.values()], 0.27, color=colour, label=NAMES[column]
        )
    axes.plot([row[FIRST_ORDER] for row in layers.values()], places, "k|", label="all, to first order")
    axes.set_yticks(places, list(layers))
    axes.set_title("by layer")
    _finish(axes, diff)


def _draw_again(axes: Axes, diff: ModelDiff) -> None:
    places = np.arange(len(diff.again))[::-1]
    axes.barh(places, [row.part for row in diff.again], 0.7, color="tab:purple", label="part, exact")
    axes.plot([row.set_back for row in diff.again], places, "k.", label="set back")
    axes.plot([row.put_in for row in diff.again], places, "k+", label="put in")
    axes.set_yticks(places, [row.name for row in diff.again], fontsize="small")
    axes.set_title("the largest parameters, run again")
    _finish(axes, diff)


def _draw_flow(axes: Axes, diff: ModelDiff, flow: Flow) -> None:
    """Draw the flow, layer × token, with what is in later weights as one more column; each row sums."""
    shown = tokens_of_picture(flow.tokens)
    cells = np.concatenate([shown.gathered(flow.tokens), flow.later[:, None]], 1)
    drawn = draw_heat(axes, cells, colour_scale(cells), origin="lower")
    labels = [*shown.labels([token_label(token) for token in diff.tokens]), "later weights"]
    label_tokens(axes.xaxis, labels, rotation=90)
    axes.set_yticks(range(len(cells)), ["embedding", *map(str, range(len(cells) - 1))])
    axes.set_title("where the difference is, after each layer")
    add_colour_bar(drawn, axes, "part of the difference")


def _finish(axes: Axes, diff: ModelDiff) -> None:
    axes.locator_params(axis="x", nbins=5)
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_xlabel(wrapped("part of the difference", HEADING))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.06), ncols=2, fontsize="small")
