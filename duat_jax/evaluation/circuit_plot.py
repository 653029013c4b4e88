"""Plot of faithfulness curves of several methods."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from duat_jax.evaluation.circuit_curve import FRACTIONS
from duat_jax.evaluation.comparison import Row

COLOURS = 10
"""The number of line colours; further lines are dashed."""


@styled
def draw(tables: Mapping[str, Mapping[str, Row]]) -> Figure:
    """Plot faithfulness against the circuit's size, with the circuit kept and with it removed."""
    figure = Figure(figsize=(3.5 + 4.0 * len(tables), 7.0))
    axes = figure.subplots(2, len(tables), squeeze=False, sharex=True, sharey="row")
    for j, (title, table) in enumerate(tables.items()):
        for axis, which in zip(axes[:, j], ("kept", "removed"), strict=True):
            for i, (method, row) in enumerate(table.items()):
                style = "-" if i < COLOURS else "--"
                axis.plot(100 * np.array(FRACTIONS), getattr(row, which), style, marker=".", label=method)
            axis.axhline(0, color="black", linewidth=0.6)
            axis.axhline(1, color="black", linewidth=0.6)
            axis.set_xscale("log")
        axes[0, j].set_title(title)
        axes[1, j].set_xlabel("% of all units in the circuit")
    axes[0, 0].set_ylabel("faithfulness, circuit kept")
    axes[1, 0].set_ylabel("faithfulness, circuit removed")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper")
    return figure
