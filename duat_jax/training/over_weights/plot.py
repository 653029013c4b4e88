"""The picture of a number's change over weights and segments."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from duat_jax.display.pictures import add_colour_bar, colour_scale, draw_heat, styled, titled
from duat_jax.training.over_weights.result import WeightLedger


@styled
def draw(ledger: WeightLedger) -> Figure:
    """Plot the parts of groups of weights, segment by segment, with the number underneath.

    Args:
        ledger: the result to plot.
    """
    rows = len(ledger.groups)
    figure = Figure(figsize=(8.0, 3.0 + 0.2 * rows))
    parts, values = figure.subplots(2, 1, height_ratios=[max(6, rows), 6], sharex=True)
    draw_panel(parts, ledger)
    values.plot(np.arange(len(ledger.values)) - 0.5, ledger.values, "k.-")
    values.set_ylabel("number")
    values.set_xlabel("segment")
    values.xaxis.set_major_locator(MaxNLocator(integer=True))
    titled(figure, f"The number's change, {ledger.difference:+z.4f}, by weights")
    return figure


def draw_panel(axes: Axes, ledger: WeightLedger) -> None:
    """Draw the parts of groups of weights, segment by segment.

    Args:
        axes: where.
        ledger: the result to plot.
    """
    groups = ledger.groups
    cells = np.stack(list(groups.values())).astype(float)
    drawn = draw_heat(axes, cells, colour_scale(cells))
    axes.set_yticks(range(len(groups)), list(groups), fontsize="small")
    add_colour_bar(drawn, axes, "part of the change")
