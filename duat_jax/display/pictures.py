"""Elements of pictures: their style, images, and parts laid over an image."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import AsinhNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from duat_jax.display.colours import DIVERGING
from duat_jax.display.fonts import families, warn_of_missing
from duat_jax.display.tables import wrapped_lines
from duat_jax.inputs.images import SeenImage

P = ParamSpec("P")

STYLE: dict[Any, Any] = {
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "figure.titlesize": "medium",
    "legend.fontsize": "small",
    "legend.frameon": False,
}
"""The style of every picture; what it leaves open is the user's own."""

OUTLYING, OF_PARTS = 4, 98
"""A scale is no longer linear where the largest part is so many times that percentile of all parts that aren't zero."""

CHARACTERS, HEADING = 13, 4.5
"""Characters of a title in an inch, about, and the inches of a title over axes that aren't ours."""

ACROSS = 7
"""The number of small pictures in a row."""


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Return a function that draws in the style of all pictures."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context({**STYLE, "font.family": families("sans-serif")}):
            figure = draw(*args, **kwargs)
        warn_of_missing(figure)
        return figure

    return drawn


def titled(figure: Figure, *lines: str) -> None:
    """Give a figure a title of lines, wrapped where they are wider than it."""
    figure.suptitle(wrapped("\n".join(lines), figure.get_figwidth()))


def wrapped(text: str, inches: float) -> str:
    """Return a text for a picture, its lines wrapped, its dollars no mathematics."""
    return wrapped_lines(text, max(8, int(CHARACTERS * inches))).replace("$", r"\$")


def colour_scale(*tables: Float[np.ndarray, "..."]) -> Normalize:
    """Return the scale of colours of signed numbers: linear, unless a few are much larger than all others."""
    sizes = np.abs(np.concatenate([table.reshape(-1) for table in tables]))
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return Normalize(-1, 1)
    largest, most = float(sizes.max()), float(np.percentile(sizes, OF_PARTS))
    if largest <= OUTLYING * most:
        return Normalize(-largest, largest)
    return AsinhNorm(linear_width=most / 2, vmin=-largest, vmax=largest)


def draw_heat(axes: Axes, table: Float[np.ndarray, "rows columns"], scale: Normalize, **settings: Any) -> AxesImage:
    """Draw a table of signed numbers as a heat map: red for positive ones, blue for negative ones."""
    return axes.imshow(table, cmap=DIVERGING, norm=scale, aspect="auto", interpolation="nearest", **settings)


def add_colour_bar(drawn: AxesImage, axes: Axes | list[Axes], label: str, **settings: Any) -> None:
    """Add the scale of the colours beside axes."""
    scale = drawn.norm
    if isinstance(scale, AsinhNorm):
        # Matplotlib's own ticks lie over each other around zero.
        most, largest = 2 * scale.linear_width, float(scale.vmax or 0)
        settings |= {"ticks": [-largest, -most, 0, most, largest], "format": "%.3g"}
        label += ", colours not linear"
    drawn.figure.colorbar(drawn, ax=axes, label=label, **settings)


def label_tokens(axis: Axis, labels: Sequence[str], **settings: Any) -> None:
    """Label the entries of an axis with tokens."""
    shown = [label.replace("$", r"\$") for label in labels]
    axis.set_ticks(range(len(shown)), shown, family=families("monospace"), **settings)


def show(axes: Axes, image: SeenImage, *, grey: bool = False) -> None:
    """Show the image: of three channels in colour, of others as their mean; or in light grey, for what lies over it."""
    pixels = np.moveaxis(image.pixels, 0, -1).astype(float)
    least, most = pixels.min(), pixels.max()
    pixels = (pixels - least) / ((most - least) or 1.0)
    if grey or pixels.shape[-1] != 3:
        # The low frequencies of a sound stand first, and are drawn at the bottom.
        way: dict[str, Any] = {"aspect": "auto", "origin": "lower"} if image.sound else {}
        axes.imshow(pixels.mean(-1), cmap="gray", vmin=-0.8 if grey else 0, vmax=1, **way)
    else:
        axes.imshow(pixels)
    axes.set_axis_off()


def overlay(axes: Axes, image: SeenImage, numbers: Float[np.ndarray, "patches"], limit: float) -> AxesImage:
    """Lay patches over the image, the smaller ones more transparent."""
    show(axes, image, grey=True)
    table = numbers.reshape(image.rows, image.columns)
    height, width = image.pixels.shape[1:]
    return axes.imshow(
        table,
        cmap=DIVERGING,
        vmin=-limit,
        vmax=limit,
        alpha=0.1 + 0.8 * np.abs(table) / limit,
        extent=(-0.5, width - 0.5, -0.5, height - 0.5) if image.sound else (-0.5, width - 0.5, height - 0.5, -0.5),
        aspect="auto" if image.sound else "equal",
    )
