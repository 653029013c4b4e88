"""The flow picture: the difference between two inputs after each layer, token by token, and the heads that carry it."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

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
from duat_jax.inputs.images import SeenImage
from duat_jax.interpret.contrast.result import Contrast
from duat_jax.interpret.contrast.table import token_labels


@styled
def draw(contrast: Contrast) -> Figure:
    """Return the flow picture, layer × token; of an image, one that lies over it.

    Args:
        contrast: what to draw.
    """
    return _draw_flow(contrast) if contrast.image is None else _draw_flow_over_image(contrast, contrast.image)


def draw_panel(axes: Axes, contrast: Contrast) -> None:
    """Draw the flow, layer × token; of an image, the parts of its patches before the first layer over it.

    Args:
        axes: where.
        contrast: what to draw.
    """
    if contrast.image is None:
        shown = tokens_of_picture(contrast.flow)
        drawn = _draw_tokens(axes, contrast, shown, colour_scale(shown.gathered(contrast.flow)))
    else:
        parts = contrast.flow[0].astype(float)[PATCHES]
        drawn = overlay(axes, contrast.image, parts, float(np.abs(parts).max()) or 1.0)
    axes.set_title(wrapped(f"{contrast.target}: {contrast.difference:+z.4f}", HEADING))
    add_colour_bar(drawn, axes, "part of the difference")


def _draw_tokens(axes: Axes, contrast: Contrast, shown: ShownTokens, scale: Normalize) -> AxesImage:
    """Draw the flow; a token that the other text has another of, or none in its place, is bold."""
    drawn = draw_heat(axes, shown.gathered(contrast.flow), scale, origin="lower")
    label_tokens(axes.xaxis, shown.labels(token_labels(contrast, "\n")), rotation=90)
    for label in axes.get_xticklabels():
        label.set_fontweight("bold" if "\n" in label.get_text() else "normal")
    axes.set_yticks(range(len(contrast.rows)), contrast.rows)
    return drawn


def _draw_flow(contrast: Contrast) -> Figure:
    """Return the flow picture: red for parts of the difference, blue for what works against it.

    Rows are the stream after the embedding (bottom) and after each layer; each sums to the difference. Beside them,
    what each layer's heads carry from token to token, summed over the tokens that they carry it to.
    """
    shown = tokens_of_picture(contrast.flow)
    flow, heads = shown.gathered(contrast.flow), head_sums(contrast)
    rows, columns = flow.shape
    widths = max(0.34 * columns, 3.6), max(0.24 * heads.shape[1], 1.5)
    figure = Figure(figsize=(min(26.0, 2.6 + sum(widths)), 2.2 + max(0.24 * rows, 2.4)))
    flow_axes, heads_axes = figure.subplots(1, 2, sharey=True, width_ratios=widths)
    scale = colour_scale(flow, heads[~np.isnan(heads)])
    _draw_tokens(flow_axes, contrast, shown, scale)
    drawn = draw_heat(heads_axes, heads, scale, origin="lower")
    flow_axes.set_title(wrapped("where the difference is, after each layer", widths[0]))
    heads_axes.set_xticks(range(heads.shape[1]))
    heads_axes.set_xlabel("head")
    heads_axes.tick_params(labelleft=False)
    heads_axes.set_title(wrapped("what heads carry", widths[1]))
    add_colour_bar(drawn, heads_axes, "part of the difference", fraction=0.1)
    titled(figure, *title(contrast))
    return figure


def head_sums(contrast: Contrast) -> Float[np.ndarray, "rows heads"]:
    """Return the parts of each layer's heads, summed over tokens, in the rows of the flow; NaN where there is none.

    Args:
        contrast: what to draw.
    """
    most = max((part.shape[1] for part in contrast.heads.values()), default=1)
    sums = np.full((len(contrast.flow), most), np.nan)
    for row, part in enumerate(contrast.heads.values(), 1):
        sums[row, : part.shape[1]] = part.sum(0)
    return sums


def title(contrast: Contrast) -> tuple[str, str]:
    """Return the lines of the title: the target, its values on both inputs, and the difference.

    Args:
        contrast: what is drawn.
    """
    reference = (
        contrast.references[0].name
        if len(contrast.references) == 1
        else f"{len(contrast.references)} references, on average"
    )
    value = contrast.value - contrast.difference
    return (
        contrast.target.headline,
        f"{contrast.value:+z.4f}, and {value:+z.4f} with {reference}: every row sums to {contrast.difference:+z.4f}"
        + (" with what moved or jumped after it" if contrast.leaves_out else ""),
    )


def _draw_flow_over_image(contrast: Contrast, image: SeenImage) -> Figure:
    """Return the difference over the image, patch by patch, in the stream after the embedding and after each layer.

    Red is a part of the difference, blue what works against it; each panel and its token of the whole image sum to the
    difference.

    Args:
        contrast: what to draw.
        image: what the model read.
    """
    flow = contrast.flow.astype(float)
    rows = -(-(len(flow) + 1) // ACROSS)
    figure = Figure(figsize=(2.1 * ACROSS, 1.0 + 2.5 * rows))
    seen, *panels = figure.subplots(rows, ACROSS, squeeze=False).reshape(-1)
    show(seen, image)
    seen.set_title("what the model read", fontsize="small")
    limit = float(np.abs(flow[:, PATCHES]).max()) or 1.0
    for axes, parts, name in zip(panels, flow, contrast.rows, strict=False):
        drawn = overlay(axes, image, parts[PATCHES], limit)
        axes.set_title(f"{name}\npatches {parts[PATCHES].sum():+z.4f}\nwhole {parts[0]:+z.4f}", fontsize="small")
    for axes in panels[len(flow) :]:
        axes.set_axis_off()
    figure.colorbar(drawn, ax=panels, label="part of a patch", shrink=0.8)
    titled(figure, *title(contrast))
    return figure
