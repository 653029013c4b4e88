"""The picture of an explanation: term × token, with the sums of rows and columns."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from duat_jax.display.colours import DIVERGING, NEGATIVE, POSITIVE
from duat_jax.display.fonts import families
from duat_jax.display.pictures import ACROSS, LABELLED, PATCHES, overlay, show, styled
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


def _draw_table(explanation: Explanation) -> Figure:
    """Return the term × token picture: red for contributions that raise the value, blue for those that lower it.

    Rows are the embedding (bottom) and the terms above it; the bars are the rows' and columns' sums, and the grey
    outline the contributions of the tokens by the collapse.

    Args:
        explanation: what to draw.
    """
    table = np.vstack([explanation.embedding, explanation.term_tokens]).astype(float)
    rows, columns = table.shape
    limit = np.abs(table).max() or 1.0
    figure = Figure(figsize=(max(7.0, min(22.0, 3.0 + 0.32 * columns)), 3.4 + 0.26 * rows))
    grid = figure.add_gridspec(2, 2, width_ratios=(6, 1), height_ratios=(1.1, 0.32 * rows))
    heat = figure.add_subplot(grid[1, 0])
    above = figure.add_subplot(grid[0, 0], sharex=heat)
    right = figure.add_subplot(grid[1, 1], sharey=heat)

    image = heat.imshow(table, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto", origin="lower")
    step = -(-columns // LABELLED)
    labels = [token_label(token).replace("$", r"\$") for token in explanation.tokens]
    heat.set_xticks(range(0, columns, step), labels[::step], rotation=90, family=families("monospace"))
    heat.set_yticks(range(rows), ["embedding", *explanation.labels.values()])
    heat.set_xlabel("token")
    heat.set_xlim(-0.5, columns - 0.5)

    sums = table.sum(0)
    above.bar(range(columns), sums, color=np.where(sums < 0, NEGATIVE, POSITIVE))
    above.step(
        np.arange(-1, columns + 1),
        np.pad(explanation.input_tokens, 1),
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

    figure.colorbar(image, ax=right, label="contribution")
    figure.suptitle(title(explanation))
    return figure


def title(explanation: Explanation) -> str:
    """Return the title: the target, its value, and the sums of its parts.

    Args:
        explanation: what is drawn.
    """
    bias = sum(explanation.biases.values())
    return (
        f"{explanation.target} = {explanation.value:.4f}".replace("$", r"\$")
        + f"\nembedding {explanation.embedding.sum():+.4f}   terms {explanation.term_tokens.sum():+.4f}"
        + f"   biases {bias:+.4f}   (error {float(explanation.completeness.error):+.1e})"
    )


def _draw_over_image(explanation: Explanation, image: SeenImage) -> Figure:
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
    figure = Figure(figsize=(2.1 * ACROSS, 4.9 + 2.3 * rows))
    above, below = figure.subfigures(2, 1, height_ratios=(4.4, 2.3 * rows), squeeze=False).reshape(-1)

    seen, together, collapse, bars = above.subplots(1, 4, width_ratios=(1, 1, 1, 1.1))
    show(seen, image)
    seen.set_title("what the model read")
    for axes, numbers, what in (
        (together, table.sum(0), "embedding and terms"),
        (collapse, explanation.input_tokens, "collapse"),
    ):
        limit = _limit(numbers[PATCHES])
        drawn = overlay(axes, image, numbers[PATCHES], limit)
        axes.set_title(f"{what}, by patch\nwhole {numbers[0]:+.4f}")
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
    above.suptitle(title(explanation))
    return figure


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
