"""The picture of an explanation: term × token, with the sums of rows and columns."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from duat_jax.display.colours import NEGATIVE, POSITIVE
from duat_jax.display.pictures import (
    ACROSS,
    HEADING,
    PATCHES,
    add_colour_bar,
    colour_scale,
    draw_heat,
    label_tokens,
    overlay,
    show,
    styled,
    titled,
    wrapped,
)
from duat_jax.display.shown_tokens import ShownTokens, tokens_of_picture
from duat_jax.display.tables import token_label
from duat_jax.inputs.images import SeenImage
from duat_jax.interpret.explain.result import Explanation


@styled
def draw(explanation: Explanation) -> Figure:
    """Return the term × token picture; of an image, one that lies over it.

    Args:
        explanation: what to draw.
    """
    return _draw_table(explanation) if explanation.image is None else _draw_over_image(explanation, explanation.image)


def draw_panel(axes: Axes, explanation: Explanation) -> None:
    """Draw the contributions of terms and tokens; of an image, those of its patches over it.

    Args:
        axes: where.
        explanation: what to draw.
    """
    table = _table(explanation)
    if explanation.image is None:
        drawn = _draw_heat(axes, explanation, table, tokens_of_picture(table))
        axes.set_title(_heading(explanation))
    else:
        drawn = _draw_patches(axes, explanation.image, table.sum(0), _heading(explanation))
    add_colour_bar(drawn, axes, "contribution")


def _table(explanation: Explanation) -> Float[np.ndarray, "terms tokens"]:
    return np.vstack([explanation.embedding, explanation.term_tokens]).astype(float)


def _draw_heat(axes: Axes, explanation: Explanation, table: np.ndarray, shown: ShownTokens) -> AxesImage:
    """Draw the contributions, rows the embedding (bottom) and the terms above it."""
    gathered = shown.gathered(table)
    drawn = draw_heat(axes, gathered, colour_scale(gathered), origin="lower")
    label_tokens(axes.xaxis, shown.labels([token_label(token) for token in explanation.tokens]), rotation=90)
    axes.set_yticks(range(len(table)), ["embedding", *explanation.labels.values()])
    axes.set_xlabel("token")
    return drawn


def _draw_table(explanation: Explanation) -> Figure:
    """Return the term × token picture: red for contributions that raise the value, blue for those that lower it.

    The bars are the rows' and columns' sums, and the grey outline the contributions of the tokens by the collapse.
    """
    table = _table(explanation)
    shown = tokens_of_picture(np.vstack([table, explanation.collapse]))
    sums = shown.gathered(table.sum(0))
    rows, columns = len(table), len(sums)
    figure = Figure(figsize=(max(7.0, min(22.0, 3.0 + 0.32 * columns)), 3.4 + 0.26 * rows))
    grid = figure.add_gridspec(2, 2, width_ratios=(6, 1), height_ratios=(1.1, 0.32 * rows))
    heat = figure.add_subplot(grid[1, 0])
    above = figure.add_subplot(grid[0, 0], sharex=heat)
    right = figure.add_subplot(grid[1, 1], sharey=heat)

    drawn = _draw_heat(heat, explanation, table, shown)
    heat.set_xlim(-0.5, columns - 0.5)

    above.bar(range(columns), sums, color=np.where(sums < 0, NEGATIVE, POSITIVE))
    above.step(
        np.arange(-1, columns + 1),
        np.pad(shown.gathered(explanation.collapse), 1),
        where="mid",
        color="0.35",
        linewidth=1,
        label="collapse",
    )
    above.axhline(0, color="black", linewidth=0.6)
    above.tick_params(labelbottom=False)
    above.set_ylabel("per token")
    above.legend()

    sums = table.sum(1)
    right.barh(range(rows), sums, color=np.where(sums < 0, NEGATIVE, POSITIVE))
    right.axvline(0, color="black", linewidth=0.6)
    right.tick_params(labelleft=False)
    right.set_xlabel("per term")

    add_colour_bar(drawn, right, "contribution")
    titled(figure, *title(explanation))
    return figure


def _heading(explanation: Explanation) -> str:
    return wrapped(f"{explanation.target} = {explanation.value:z.4f}", HEADING)


def title(explanation: Explanation) -> tuple[str, str]:
    """Return the lines of the title: the target, its value, and the sums of its parts.

    Args:
        explanation: what is drawn.
    """
    bias = sum(explanation.biases.values())
    return (
        f"{explanation.target} = {explanation.value:z.4f}",
        f"embedding {explanation.embedding.sum():+z.4f}   terms {explanation.term_tokens.sum():+z.4f}"
        f"   biases {bias:+z.4f}   (error {float(explanation.completeness.error):+.1e})",
    )


def _draw_over_image(explanation: Explanation, image: SeenImage) -> Figure:
    """Return the patches' contributions over the image: in all, by the collapse, and term by term.

    Red raises the value, blue lowers it, and the stronger a colour, the more of the image it covers. The bars are each
    term's sums, over the patches and at the token of the whole image.

    Args:
        explanation: what to draw.
        image: what the model read.
    """
    table = _table(explanation)
    names = ["embedding", *explanation.labels.values()]
    rows = -(-len(table) // ACROSS)
    figure = Figure(figsize=(2.1 * ACROSS, 4.9 + 2.3 * rows))
    above, below = figure.subfigures(2, 1, height_ratios=(4.4, 2.3 * rows), squeeze=False).reshape(-1)

    seen, together, collapse, bars = above.subplots(1, 4, width_ratios=(1, 1, 1, 1.1))
    show(seen, image)
    seen.set_title("what the model read")
    for axes, numbers, what in (
        (together, table.sum(0), "embedding and terms"),
        (collapse, explanation.collapse, "collapse"),
    ):
        drawn = _draw_patches(axes, image, numbers, f"{what}, by patch")
        above.colorbar(drawn, ax=axes, location="bottom", shrink=0.9)
    _draw_bars(bars, table, names)

    panels = below.subplots(rows, ACROSS, squeeze=False).reshape(-1)
    limit = _limit(table[:, PATCHES])
    for axes, numbers, name in zip(panels, table, names, strict=False):
        drawn = overlay(axes, image, numbers[PATCHES], limit)
        axes.set_title(f"{name}\n{numbers[PATCHES].sum():+z.4f}", fontsize="small")
    for axes in panels[len(table) :]:
        axes.set_axis_off()
    below.colorbar(drawn, ax=panels.tolist(), label="contribution of a patch", shrink=0.8)
    titled(figure, *title(explanation))
    return figure


def _draw_patches(axes: Axes, image: SeenImage, numbers: Float[np.ndarray, "tokens"], name: str) -> AxesImage:
    axes.set_title(f"{name}\nwhole {numbers[0]:+z.4f}")
    return overlay(axes, image, numbers[PATCHES], _limit(numbers[PATCHES]))


def _limit(numbers: Float[np.ndarray, "*shape"]) -> float:
    return float(np.abs(numbers).max()) or 1.0


def _draw_bars(axes: Axes, table: Float[np.ndarray, "terms tokens"], names: list[str]) -> None:
    places = np.arange(len(table))
    for numbers, shift, alpha, what in (
        (table[:, PATCHES].sum(1), -0.2, 0.55, "patches"),
        (table[:, 0], 0.2, 1.0, "whole"),
    ):
        axes.barh(places + shift, numbers, 0.4, color=np.where(numbers < 0, NEGATIVE, POSITIVE), alpha=alpha)
        axes.barh([0], [0], color="0.3", alpha=alpha, label=what)
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_yticks(places, names, fontsize="small")
    axes.invert_yaxis()
    axes.set_title("by term")
    axes.legend()
