"""Plots of the change by adapters."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from duat_jax.display.pictures import HEADING, styled, titled, wrapped
from duat_jax.lora.parameters import Moved
from duat_jax.lora.result import COLUMNS, LoraChange

NAMES = {
    "moved": "base, moved dynamics",
    "adapter": "adapters, base's dynamics",
    "interaction": "interaction",
}
COLOURS = {"moved": "tab:blue", "adapter": "tab:orange", "interaction": "tab:gray"}

SHOWN = 24
"""The number of adapters that are plotted: those with the largest parts."""


@styled
def draw(change: LoraChange) -> Figure:
    """Plot the three columns of the change by term, and the part of each adapter, as two bar charts.

    Args:
        change: the result to plot.
    """
    largest = sorted(change.effects, key=lambda effect: -abs(effect.part))[:SHOWN]
    effects = [effect for effect in change.effects[::-1] if effect in largest]
    height = 2.0 + 0.24 * max(len(change.rows), len(effects))
    figure = Figure(figsize=(11.0, height))
    left, right = figure.subplots(1, 2)
    draw_panel(left, change)
    places = np.arange(len(effects))
    right.barh(places, [effect.part for effect in effects], 0.7, color="tab:purple", label="part, exact")
    right.plot([effect.alone for effect in effects], places, "k.", markersize=5, label="run again, alone")
    right.plot([effect.first_order for effect in effects], places, "|", color="tab:red", label="first order")
    right.set_yticks(places, [effect.name for effect in effects], fontsize="small")
    right.set_title("by adapter" + (f", the largest {SHOWN}" if len(change.effects) > SHOWN else ""))
    _finish(right, change)
    titled(figure, f"{change.before:+z.3f} without adapters, {change.after:+z.3f} with them")
    return figure


def draw_panel(axes: Axes, change: LoraChange) -> None:
    """Draw the three columns of the change by term.

    Args:
        axes: where.
        change: the result to plot.
    """
    rows = change.rows
    names = list(rows)[::-1]
    places = np.arange(len(names))
    for k, column in enumerate(COLUMNS):
        values = [rows[name][column] for name in names]
        axes.barh(places + 0.27 * (1 - k), values, 0.27, color=COLOURS[column], label=NAMES[column])
    axes.set_yticks(places, names)
    axes.set_title("by term of the closed form")
    _finish(axes, change)


def _finish(axes: Axes, change: LoraChange) -> None:
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_xlabel(wrapped(f"change of the {change.target.headline.split(' at token')[0]}", HEADING))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.04), ncols=3)


@styled
def draw_moved(moved: dict[str, Moved]) -> Figure:
    """Plot the relative change of every parameter of the closed form, in percent, as heat maps side by side.

    Args:
        moved: the results of `moved_parameters`, by the title of the heat map.
    """
    figure = Figure(figsize=(1.5 + 4.5 * len(moved), 1.2 + 0.42 * len(next(iter(moved.values())).inner_maps)))
    figure.set_layout_engine("constrained")
    maps = {
        title: np.array(
            [
                [float(norm.value) for norm in list(norms.input_maps.values())[1:]],
                [float(norm) for norm in list(norms.biases.values())[1:]],
                [float(norm.value) for norm in norms.inner_maps.values()],
                [float(norm) for norm in norms.inner_biases.values()],
                [float(norm.value) for norm in norms.outer_maps.values()],
            ]
        ).T
        for title, norms in moved.items()
    }
    largest = 100 * max(values.max() for values in maps.values())
    for axis, (title, values) in zip(
        np.atleast_1d(figure.subplots(1, len(maps), sharey=True)), maps.items(), strict=True
    ):
        image = axis.imshow(100 * values, cmap="Blues", vmin=0, vmax=largest, aspect="auto")
        axis.set_title(title)
        axis.set_xticks(range(5), ["$W'_1$", "$b'_3$", "$W'_2$", "$b'_2$", "$W'_3$"])
        axis.set_yticks(range(len(values)), [f"layer {i}" for i in range(len(values))])
        for (i, j), value in np.ndenumerate(100 * values):
            colour = "white" if value > largest / 2 else "black"
            axis.text(j, i, f"{value:z.1f}" if value else "0", ha="center", va="center", color=colour, fontsize="small")
    figure.colorbar(image, ax=figure.axes, label="% of the parameter's size")
    return figure


@styled
def draw_losses(losses: Float[np.ndarray, "steps"], before: float, after: float) -> Figure:
    """Draw the loss at each training step, and that on held-out text before and after.

    Args:
        losses: the loss at each step, in nats per token.
        before: the loss on held-out text before training.
        after: the same after it.
    """
    figure = Figure(figsize=(7.0, 4.0))
    axis = figure.subplots()
    axis.plot(range(len(losses)), losses, color="tab:blue", linewidth=1, label="at a step, text trained on")
    axis.plot([0, len(losses)], [before, after], "o", color="tab:orange", label="held-out text, before and after")
    axis.set_xlabel("step")
    axis.set_ylabel("loss, nats per token")
    axis.legend()
    return figure
