"""The picture of a number's change over the examples of every step."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from duat_jax.display.pictures import add_colour_bar, colour_scale, draw_heat, styled, titled
from duat_jax.training.over_examples.result import Influence


@styled
def draw(found: Influence) -> Figure:
    """Plot the parts of each row of every step's batch, their sum so far beside the number, and the loss.

    Args:
        found: the result to plot.
    """
    figure = Figure(figsize=(8.0, 7.0))
    rows, so_far, losses = figure.subplots(3, 1, height_ratios=[3, 3, 2], sharex=True)
    draw_panel(rows, found)
    steps = np.arange(1, len(found.losses) + 1) - 0.5
    so_far.plot(
        steps,
        found.ledger.values[0] + np.cumsum(found.of_steps),
        label="with the parts of the steps so far (gradients act in later steps, too)",
    )
    so_far.plot(np.array(found.kept) - 0.5, found.ledger.values, "k.", label="the number")
    so_far.legend(fontsize="small")
    so_far.set_ylabel("number")
    losses.plot(steps - 0.5, found.losses, color="tab:gray")
    losses.set_ylabel("loss of the step")
    losses.set_xlabel("step")
    titled(figure, f"The number's change, {found.difference:+z.4f}, by examples")
    return figure


def draw_panel(axes: Axes, found: Influence) -> None:
    """Draw the parts of each row of every step's batch.

    Args:
        axes: where.
        found: the result to plot.
    """
    cells = found.rows.T
    drawn = draw_heat(axes, cells, colour_scale(cells))
    axes.set_ylabel("row of the batch")
    add_colour_bar(drawn, axes, "part of the change")
