"""Parts of pictures that several studies draw: colours, dots with intervals, and panels of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled

OURS, OTHER, PALE = "#b2182b", "#4d4d4d", "#92c5de"
"""Colours of this project's methods, of others, and of a second series."""

OUR_METHODS = "secant", "collapse", "contributions"
"""The beginnings of methods of this package."""
OUR_ROWS = "full attention", "exact part", "run again, everything", "between tasks"
"""The beginnings of rows that are drawn in the colour of this project's."""


def colours(methods: Iterable[str]) -> dict[str, str]:
    """Return the colour of every method: this package's are red."""
    return {method: OURS if method.startswith(OUR_METHODS) else OTHER for method in methods}


def dots(axes: Axes, estimates: Mapping[str, Sequence[float]], colours: Mapping[str, str] | str, **style: Any) -> None:
    """Draw a row for each name, from top to bottom: a dot and its interval."""
    values = np.array(list(estimates.values()), float)
    places = np.arange(len(estimates))
    of_dots = [colours if isinstance(colours, str) else colours[name] for name in estimates]
    axes.hlines(places, values[:, 1], values[:, 2], colors=of_dots, linewidth=1.2)
    axes.scatter(values[:, 0], places, color=of_dots, zorder=3, **{"s": 22, **style})
    axes.set_yticks(places, list(estimates))
    axes.set_ylim(len(estimates) - 0.5, -0.5)
    if values.min() < 0 < values.max():
        axes.axvline(0, color="black", linewidth=0.6)
    axes.grid(axis="x", alpha=0.3)


def stack(axes: Axes, parts: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Draw a bar for each task, whose two parts stand one after another, and the interval of each at its own height."""
    before = np.zeros(len(next(iter(parts.values()))))
    for (part, of_tasks), colour, shift in zip(parts.items(), (PALE, OURS), (-0.1, 0.1), strict=True):
        values = np.array(list(of_tasks.values()))
        ends = before + values[:, 0]
        axes.barh(list(of_tasks), values[:, 0], left=before, color=colour, height=0.6, label=part)
        places = np.arange(len(values)) + shift
        axes.hlines(places, before + values[:, 1], before + values[:, 2], color="black", linewidth=1)
        before = ends
    axes.invert_yaxis()
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, columnspacing=1, handlelength=1)


@styled
def draw_panels(numbers: Mapping[str, Any]) -> Figure:
    """Draw panels with a row for each name."""
    figure = Figure(figsize=(10.4, 1.2 + 0.24 * max(len(rows) for _, rows in numbers.values())))
    panels = figure.subplots(1, len(numbers), squeeze=False)[0]
    for axes, (title, (axis, rows)) in zip(panels, numbers.items(), strict=True):
        dots(axes, rows, {name: OURS if name.startswith(OUR_ROWS) else OTHER for name in rows})
        axes.set(title=title, xlabel=axis)
    return figure
