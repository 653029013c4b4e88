"""What adapters change, as a picture."""

import numpy as np
from matplotlib.figure import Figure

from duat_jax.lora.parameters import Moved
from duat_jax.lora.result import COLUMNS, LoraChange

NAMES = {
    "moved": "base, moved dynamics",
    "adapter": "adapters, base's dynamics",
    "interaction": "interaction",
}
COLOURS = {"moved": "tab:blue", "adapter": "tab:orange", "interaction": "tab:gray"}

SHOWN = 24
"""How many adapters are drawn: those with the largest parts."""


def draw(found: LoraChange) -> Figure:
    """Return two bar charts: the three columns of the change by term, and the part of each adapter beside its others.

    Args:
        found: what to show.
    """
    largest = sorted(found.effects, key=lambda effect: -abs(effect.part))[:SHOWN]
    rows, effects = found.rows, [effect for effect in found.effects[::-1] if effect in largest]
    height = 2.0 + 0.24 * max(len(rows), len(effects))
    figure = Figure(figsize=(11.0, height), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = list(rows)[::-1]
    places = np.arange(len(names))
    for k, column in enumerate(COLUMNS):
        values = [rows[name][column] for name in names]
        left.barh(places + 0.27 * (1 - k), values, 0.27, color=COLOURS[column], label=NAMES[column])
    left.set_yticks(places, names)
    left.set_title("by term of the closed form", fontsize="medium")
    places = np.arange(len(effects))
    right.barh(places, [effect.part for effect in effects], 0.7, color="tab:purple", label="part, exact")
    right.plot([effect.alone for effect in effects], places, "k.", markersize=5, label="run again, alone")
    right.plot([effect.first_order for effect in effects], places, "|", color="tab:red", label="first order")
    right.set_yticks(places, [effect.name for effect in effects], fontsize="small")
    right.set_title("by adapter" + (f", the largest {SHOWN}" if len(found.effects) > SHOWN else ""), fontsize="medium")
    for axis in (left, right):
        axis.axvline(0, color="black", linewidth=0.6)
        axis.set_xlabel(f"change of the {found.target.split(' at token')[0]}")
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.04), ncols=3, frameon=False, fontsize="small")
    figure.suptitle(f"{found.before:+.3f} without adapters, {found.after:+.3f} with them", fontsize="medium")
    return figure


def draw_moved(moved: dict[str, Moved]) -> Figure:
    """Return how far every parameter of the closed form moved, in percent of its size, as maps side by side.

    Args:
        moved: what `moved_parameters` returns, by the title of its map.
    """
    figure = Figure(figsize=(1.5 + 4.5 * len(moved), 1.2 + 0.42 * len(next(iter(moved.values())).inner_maps)))
    figure.set_layout_engine("constrained")
    maps = {
        title: np.array(
            [
                [float(one.value) for one in list(found.input_maps.values())[1:]],
                [float(one) for one in list(found.biases.values())[1:]],
                [float(one.value) for one in found.inner_maps.values()],
                [float(one) for one in found.inner_biases.values()],
                [float(one.value) for one in found.outer_maps.values()],
            ]
        ).T
        for title, found in moved.items()
    }
    largest = 100 * max(values.max() for values in maps.values())
    for axis, (title, values) in zip(
        np.atleast_1d(figure.subplots(1, len(maps), sharey=True)), maps.items(), strict=True
    ):
        image = axis.imshow(100 * values, cmap="Blues", vmin=0, vmax=largest, aspect="auto")
        axis.set_title(title, fontsize="medium")
        axis.set_xticks(range(5), ["$W'_1$", "$b'_3$", "$W'_2$", "$b'_2$", "$W'_3$"])
        axis.set_yticks(range(len(values)), [f"layer {i}" for i in range(len(values))])
        for (i, j), value in np.ndenumerate(100 * values):
            colour = "white" if value > largest / 2 else "black"
            axis.text(j, i, f"{value:.1f}" if value else "0", ha="center", va="center", color=colour, fontsize="small")
    figure.colorbar(image, ax=figure.axes, label="% of the parameter's size")
    return figure
