"""Plots of the in-context decomposition and of the reach of attention."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from duat_jax.in_context.reach import Reach
from duat_jax.in_context.result import COLUMNS, Ledger


@styled
def draw(ledger: Ledger) -> Figure:
    """Plot the parts of every layer as bars, and the measured effect of layers that read the part as in the second run.

    Args:
        ledger: the result to plot.
    """
    figure = Figure(figsize=(11, 4.2))
    left, right = figure.subplots(1, 2)
    draw_panel(left, ledger)
    right.plot(ledger.reads, ".-", label="part of what this layer reads, nothing held")
    if ledger.again_at is not None and ledger.again_from is not None:
        kind = "hidden from" if ledger.inputs is None else "the other part for"
        right.plot(ledger.again_at, ".-", label=f"run again: {kind} this layer alone")
        right.plot(ledger.again_from, ".-", label=f"run again: {kind} it and all later ones")
    right.set_xlabel("layer")
    right.axhline(0, color="black", linewidth=0.6)
    right.legend()
    return figure


def draw_panel(axes: Axes, ledger: Ledger) -> None:
    """Draw the parts of every layer as bars.

    Args:
        axes: where.
        ledger: the result to plot.
    """
    parts, places = ledger.layers, np.arange(len(ledger.layers))
    low, high = np.zeros(len(parts)), np.zeros(len(parts))
    groups = [pair for pair in zip(COLUMNS, parts.T, strict=True) if ledger.inputs is not None or pair[1].any()]
    for name, column in groups:
        bottom = np.where(column < 0, low, high)
        axes.bar(places, column, bottom=bottom, label=name)
        low, high = low + np.minimum(column, 0), high + np.maximum(column, 0)
    axes.plot(places, parts.sum(1), "k.", label="sum of the layer")
    if ledger.inputs is not None:
        axes.axhline(ledger.inputs.sum(), color="black", linestyle=":", label="moved inputs, all together")
    axes.use_sticky_edges = False
    axes.set_ylabel("part of the difference, nats")
    axes.set_xlabel("layer; the last one is the read-out")
    axes.axhline(0, color="black", linewidth=0.6)
    axes.legend()


@styled
def draw_reach(reach: Reach, kernels: Sequence[int] = (3, 16)) -> Figure:
    """Plot how far back each output position reads in every layer, compared with convolutions over the last tokens.

    Args:
        reach: the result to plot.
        kernels: the convolutions' kernel sizes.
    """
    figure = Figure(figsize=(11, 4.2))
    left, right = figure.subplots(1, 2)
    layers, tokens = reach.distance.shape
    places, back = np.arange(tokens), np.arange(1, tokens + 1)
    late = slice(tokens // 2, None)
    colours = ScalarMappable(Normalize(0, max(1, layers - 1)), "viridis")
    within = 1 - np.stack([reach.beyond(int(kernel))[:, late].mean(1) for kernel in back], 1)
    for distance, share, colour in zip(reach.distance, within, colours.to_rgba(np.arange(layers)), strict=True):
        left.plot(places, distance, color=colour, linewidth=0.9)
        right.plot(back, share, color=colour, linewidth=0.9)
    left.plot(places, places / 2, "k:")
    alike = np.minimum(back[:, None] / (places[late] + 1), 1).mean(1)
    right.plot(back, alike, "k:", label="all tokens before it alike")
    for kernel, line in zip(kernels, ("-", "--", "-."), strict=False):
        left.plot(places, np.minimum(places, kernel - 1) / 2, line, color="tab:red")
        right.plot(back, np.minimum(back / kernel, 1), line, color="tab:red", label=f"convolution, kernel {kernel}")
    left.set_xlabel("output position")
    left.set_ylabel("distance of what is written, mean in tokens")
    right.set_xlabel("last tokens")
    right.set_ylabel("share of the squared norms of what is written")
    right.set_xscale("log")
    right.legend()
    figure.colorbar(colours, ax=right, label="attention in layer")
    return figure
