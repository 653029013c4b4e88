"""Elements of pictures: their style, images, and parts laid over an image."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from duat_jax.display.colours import DIVERGING
from duat_jax.display.fonts import families, warn_of_missing
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

LABELLED = 80
"""The largest number of tokens that are all labelled; of more, every n-th is."""

ACROSS = 7
"""The number of small pictures in a row."""

PATCHES = slice(1, None)
"""The tokens after that of the whole."""


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Return a function that draws in the style of all pictures.

    Args:
        draw: returns the figure.
    """

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context({**STYLE, "font.family": families("sans-serif")}):
            figure = draw(*args, **kwargs)
        warn_of_missing(figure)
        return figure

    return drawn


def show(axes: Axes, image: SeenImage, *, grey: bool = False) -> None:
    """Show the image: of three channels in colour, of others as their mean; or in light grey, for what lies over it.

    Args:
        axes: where.
        image: the image.
        grey: whether something lies over it.
    """
    pixels = np.moveaxis(image.pixels, 0, -1).astype(float)
    least, most = pixels.min(), pixels.max()
    pixels = (pixels - least) / ((most - least) or 1.0)
    if grey or pixels.shape[-1] != 3:
        axes.imshow(pixels.mean(-1), cmap="gray", vmin=-0.8 if grey else 0, vmax=1)
    else:
        axes.imshow(pixels)
    axes.set_axis_off()


def overlay(axes: Axes, image: SeenImage, numbers: Float[np.ndarray, "patches"], limit: float) -> AxesImage:
    """Lay patches over the image, the smaller ones more transparent.

    Args:
        axes: where.
        image: the image.
        numbers: of each patch, `[patches]`.
        limit: the size of what has the strongest colour.
    """
    show(axes, image, grey=True)
    table = numbers.reshape(image.rows, image.columns)
    height, width = image.pixels.shape[1:]
    return axes.imshow(
        table,
        cmap=DIVERGING,
        vmin=-limit,
        vmax=limit,
        alpha=0.1 + 0.8 * np.abs(table) / limit,
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
    )
