"""Plot of deletion curves of several methods."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from duat_jax.evaluation.deletion import SIZES
from duat_jax.evaluation.deletion_study import DeletionRow

TITLES = {"masked": "tokens masked out", "removed": "tokens really removed"}
ORDERS = {"most_first": "the most relevant first", "least_first": "the least relevant first"}
COLUMNS = 5
"""The largest number of panels in a row."""


@styled
def draw(tables: Mapping[str, Mapping[str, DeletionRow]], value: float, label: str) -> Figure:
    """Plot the mean metric against the fraction of tokens removed, a panel for each method."""
    methods = list(next(iter(tables.values())))
    columns = min(COLUMNS, len(methods))
    rows = -(-len(methods) // columns)
    figure = Figure(figsize=(max(2.4 * columns, 7.2), 1.2 + 1.9 * rows))
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axis, method in zip(axes, methods, strict=False):
        for i, (removal, table) in enumerate(tables.items()):
            for (order, description), style in zip(ORDERS.items(), ("-", "--"), strict=True):
                numbers = [value, *getattr(table[method], order)]
                name = f"{TITLES[removal]}, {description}"
                axis.plot(100 * np.array([0.0, *SIZES]), numbers, style, marker=".", color=f"C{i}", label=name)
        axis.axhline(value, color="grey", linewidth=0.6)
        axis.set_title(method, fontsize="small")
    for axis in axes[len(methods) :]:
        axis.set_visible(False)
    for axis in axes[len(methods) - columns : len(methods)]:
        axis.xaxis.set_tick_params(labelbottom=True)
    figure.supxlabel("% of the tokens gone", fontsize="medium")
    figure.supylabel(label, fontsize="medium")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(tables))
    return figure
