"""The plot of the reach of attention."""

from collections.abc import Sequence

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from duat_jax.in_context.reach import Reach


@styled
def draw_reach(reach: Reach, kernels: Sequence[int] = (3, 16)) -> Figure:
    """Plot how far back each output position reads in every layer, compared with convolutions over the last tokens.

    Args:
        reach: the result to plot.
        kernels: the convolutions' kernel sizes.
    """
    figure = Figure(figsize=(11, 4.2))
    left, right = figure.subplots(1, 2)
    layers, tokens = reach.distance.shape
    places, back = np.arange(tokens), np.arange(1, tokens + 1)
    late = slice(tokens // 2, None)
    colours = ScalarMappable(Normalize(0, max(1, layers - 1)), "viridis")
    within = 1 - np.stack([reach.beyond(int(kernel))[:, late].mean(1) for kernel in back], 1)
    for distance, share, colour in zip(reach.distance, within, colours.to_rgba(np.arange(layers)), strict=True):
        left.plot(places, distance, color=colour, linewidth=0.9)
        right.plot(back, share, color=colour, linewidth=0.9)
    left.plot(places, places / 2, "k:")
    alike = np.minimum(back[:, None] / (places[late] + 1), 1).mean(1)
    right.plot(back, alike, "k:", label="all tokens before it alike")
    for kernel, line in zip(kernels, ("-", "--", "-."), strict=False):
        left.plot(places, np.minimum(places, kernel - 1) / 2, line, color="tab:red")
        right.plot(back, np.minimum(back / kernel, 1), line, color="tab:red", label=f"convolution, kernel {kernel}")
    left.set_xlabel("output position")
    left.set_ylabel("distance of what is written, mean in tokens")
    right.set_xlabel("last tokens")
    right.set_ylabel("share of the squared norms of what is written")
    right.set_xscale("log")
    right.legend()
    figure.colorbar(colours, ax=right, label="attention in layer")
    return figure
