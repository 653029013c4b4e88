"""Plot of deletion curves of several methods."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from duat_jax.evaluation.circuit_plot import COLOURS
from duat_jax.evaluation.deletion import SIZES
from duat_jax.evaluation.deletion_study import Row

TITLES = {"masked": "tokens masked out", "removed": "tokens really removed"}
ORDERS = {"most_first": "the most relevant first", "least_first": "the least relevant first"}


@styled
def draw(tables: Mapping[str, Mapping[str, Row]], value: float, label: str) -> Figure:
    """Plot the mean metric against the fraction of tokens removed.

    Args:
        tables: the row of each method, for each way to take tokens away.
        value: the mean metric on the whole texts.
        label: the label of the metric's axis.
    """
    figure = Figure(figsize=(4.0 + 4.0 * len(tables), 7.0))
    axes = figure.subplots(2, len(tables), squeeze=False, sharex=True, sharey=True)
    for j, (removal, table) in enumerate(tables.items()):
        for axis, (order, description) in zip(axes[:, j], ORDERS.items(), strict=True):
            for i, (method, row) in enumerate(table.items()):
                style = "-" if i < COLOURS else "--"
                numbers = [value, *getattr(row, order)]
                axis.plot(100 * np.array([0.0, *SIZES]), numbers, style, marker=".", label=method)
            axis.set_title(f"{TITLES[removal]}, {description}")
        axes[-1, j].set_xlabel("% of the tokens gone")
    for axis in axes[:, 0]:
        axis.set_ylabel(label)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper")
    return figure
