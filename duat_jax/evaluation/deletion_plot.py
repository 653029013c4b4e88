"""The curves of several methods, while tokens are taken away, as one picture."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from duat_jax.evaluation.circuit_plot import COLOURS
from duat_jax.evaluation.deletion import SIZES
from duat_jax.evaluation.deletion_study import Row

TITLES = {"masked": "tokens masked out", "removed": "tokens really removed"}
ORDERS = {"most_first": "the most relevant first", "least_first": "the least relevant first"}


def draw(tables: Mapping[str, Mapping[str, Row]], value: float, what: str) -> Figure:
    """Return the mean number over the part of the tokens that is gone.

    Args:
        tables: of each way in which tokens are taken away, the row of each method.
        value: the mean number on the whole texts.
        what: what the number is.
    """
    figure = Figure(figsize=(4.0 + 4.0 * len(tables), 7.0), layout="constrained")
    axes = figure.subplots(2, len(tables), squeeze=False, sharex=True, sharey=True)
    for j, (removal, table) in enumerate(tables.items()):
        for axis, (order, said) in zip(axes[:, j], ORDERS.items(), strict=True):
            for i, (method, row) in enumerate(table.items()):
                style = "-" if i < COLOURS else "--"
                numbers = [value, *getattr(row, order)]
                axis.plot(100 * np.array([0.0, *SIZES]), numbers, style, marker=".", label=method)
            axis.set_title(f"{TITLES[removal]}, {said}", fontsize="medium")
        axes[-1, j].set_xlabel("% of the tokens gone")
    for axis in axes[:, 0]:
        axis.set_ylabel(what)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize="small")
    return figure
