"""The flow picture: the difference between two inputs after each layer, token by token, and the heads that carry it."""

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from duat_jax.display.colours import DIVERGING
from duat_jax.display.fonts import families
from duat_jax.display.pictures import ACROSS, LABELLED, PATCHES, overlay, show, styled
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


def _draw_flow(contrast: Contrast) -> Figure:
    """Return the flow picture: red for parts of the difference, blue for what works against it.

    Rows are the stream after the embedding (bottom) and after each layer; each sums to the difference. Beside them,
    what each layer's heads carry from token to token, summed over the tokens that they carry it to.

    Args:
        contrast: what to draw.
    """
    rows, columns = contrast.flow.shape
    heads = head_sums(contrast)
    widths = max(0.34 * columns, 3.2), max(0.24 * heads.shape[1], 1.2)
    figure = Figure(figsize=(min(26.0, 2.6 + sum(widths)), 2.2 + max(0.24 * rows, 2.4)))
    flow, heads_axes = figure.subplots(1, 2, sharey=True, width_ratios=widths)
    limit = float(np.nanmax(np.abs([*contrast.flow.ravel(), *heads.ravel()]))) or 1.0
    for axes, table in ((flow, contrast.flow), (heads_axes, heads)):
        drawn = axes.imshow(table, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto", origin="lower")

    step = -(-columns // LABELLED)
    labels = [label.replace("$", r"\$") for label in token_labels(contrast, "\n")]
    flow.set_xticks(range(0, columns, step), labels[::step], rotation=90, family=families("monospace"))
    for label in flow.get_xticklabels():
        label.set_fontweight("bold" if "\n" in label.get_text() else "normal")
    flow.set_yticks(range(rows), contrast.rows)
    flow.set_title("where the difference is, after each layer")
    heads_axes.set_xticks(range(heads.shape[1]))
    heads_axes.set_xlabel("head")
    heads_axes.tick_params(labelleft=False)
    heads_axes.set_title("what heads carry")
    figure.colorbar(drawn, ax=heads_axes, label="part of the difference", fraction=0.1)
    figure.suptitle(title(contrast))
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


def title(contrast: Contrast) -> str:
    """Return the title: the target, its values on both inputs, and the difference.

    Args:
        contrast: what is drawn.
    """
    reference = contrast.others[0].name if len(contrast.others) == 1 else f"{len(contrast.others)} others, on average"
    value = contrast.value - contrast.difference
    return (
        f"{contrast.target}\n{contrast.value:+.4f}, and {value:+.4f} with {reference}:"
        f" every row sums to {contrast.difference:+.4f}"
        + (" with what moved or jumped after it" if contrast.leaves_out else "")
    ).replace("$", r"\$")


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
        axes.set_title(f"{name}\npatches {parts[PATCHES].sum():+.4f}\nwhole {parts[0]:+.4f}", fontsize="small")
    for axes in panels[len(flow) :]:
        axes.set_axis_off()
    figure.colorbar(drawn, ax=panels, label="part of a patch", shrink=0.8)
    figure.suptitle(title(contrast))
    return figure
