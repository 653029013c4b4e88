"""An explanation of an image as one picture: every patch's contribution, laid over the image."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from duat_jax.explanation.picture import BLUE, RED, title

if TYPE_CHECKING:
    from duat_jax.explanation.result import Explanation, SeenImage

ACROSS = 7
"""How many small pictures stand side by side."""

PATCHES = slice(1, None)
"""The tokens after that of the whole."""


def draw_over_image(explanation: "Explanation", image: "SeenImage") -> Figure:
    """Return the patches' contributions over the image: in all, by the collapse, and term by term.

    Red raises the value, blue lowers it, and the stronger a colour, the more of the image it covers. The bars are each
    term's sums, over the patches and at the token of the whole image.

    Args:
        explanation: what to draw.
        image: what the model read.
    """
    table = np.vstack([explanation.embedding, explanation.term_tokens]).astype(float)
    names = ["embedding", *explanation.labels.values()]
    rows = -(-len(table) // ACROSS)
    figure = Figure(figsize=(2.1 * ACROSS, 4.9 + 2.3 * rows), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(4.4, 2.3 * rows), squeeze=False).reshape(-1)

    seen, together, collapse, bars = above.subplots(1, 4, width_ratios=(1, 1, 1, 1.1))
    show(seen, image)
    seen.set_title("what the model read", fontsize="medium")
    for axes, numbers, what in (
        (together, table.sum(0), "embedding and terms"),
        (collapse, explanation.input_tokens, "collapse"),
    ):
        limit = _limit(numbers[PATCHES])
        drawn = overlay(axes, image, numbers[PATCHES], limit)
        axes.set_title(f"{what}, by patch\nwhole {numbers[0]:+.4f}", fontsize="medium")
        above.colorbar(drawn, ax=axes, location="bottom", shrink=0.9)
    _draw_bars(bars, table, names)

    panels = below.subplots(rows, ACROSS, squeeze=False).reshape(-1)
    limit = _limit(table[:, PATCHES])
    for axes, numbers, name in zip(panels, table, names, strict=False):
        drawn = overlay(axes, image, numbers[PATCHES], limit)
        axes.set_title(f"{name}\n{numbers[PATCHES].sum():+.4f}", fontsize="small")
    for axes in panels[len(table) :]:
        axes.set_axis_off()
    below.colorbar(drawn, ax=panels.tolist(), label="contribution of a patch", shrink=0.8)
    above.suptitle(title(explanation), fontsize="medium")
    return figure


def _limit(numbers: Float[np.ndarray, "*shape"]) -> float:
    return float(np.abs(numbers).max()) or 1.0


def show(axes: Axes, image: "SeenImage", *, grey: bool = False) -> None:
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


def overlay(axes: Axes, image: "SeenImage", numbers: Float[np.ndarray, "patches"], limit: float) -> AxesImage:
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
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        alpha=0.1 + 0.8 * np.abs(table) / limit,
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
    )


def _draw_bars(axes: Axes, table: Float[np.ndarray, "terms tokens"], names: list[str]) -> None:
    places = np.arange(len(table))
    for numbers, shift, alpha, what in (
        (table[:, PATCHES].sum(1), -0.2, 0.55, "patches"),
        (table[:, 0], 0.2, 1.0, "whole"),
    ):
        axes.barh(places + shift, numbers, 0.4, color=np.where(numbers < 0, BLUE, RED), alpha=alpha)
        axes.barh([0], [0], color="0.3", alpha=alpha, label=what)
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_yticks(places, names, fontsize="small")
    axes.invert_yaxis()
    axes.set_title("by term", fontsize="medium")
    axes.legend(frameon=False, fontsize="small")
