"""An explanation as one picture: layer × token, with the sums beside it."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from duat_jax.explanation.table import token_label

if TYPE_CHECKING:
    from duat_jax.explanation.result import Explanation

RED, BLUE = "#c0504d", "#4a7fb5"
"""Of what raises the value, and of what lowers it."""

LABELLED = 80
"""Up to this many tokens every token is labelled; beyond, every n-th."""


def draw(explanation: "Explanation") -> Figure:
    """Return the term × token picture: red for contributions that raise the value, blue for those that lower it.

    Rows are the embedding (bottom) and the terms above it; the bars are the rows' and columns' sums, and the grey
    outline the contributions of the tokens by the collapse.

    Args:
        explanation: what to draw.
    """
    table = np.vstack([explanation.embedding, explanation.term_tokens]).astype(float)
    rows, columns = table.shape
    limit = np.abs(table).max() or 1.0
    figure = Figure(figsize=(max(7.0, min(22.0, 3.0 + 0.32 * columns)), 3.4 + 0.26 * rows), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(6, 1), height_ratios=(1.1, 0.32 * rows))
    heat = figure.add_subplot(grid[1, 0])
    above = figure.add_subplot(grid[0, 0], sharex=heat)
    right = figure.add_subplot(grid[1, 1], sharey=heat)

    image = heat.imshow(table, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", origin="lower")
    every = -(-columns // LABELLED)
    labels = [token_label(token).replace("$", r"\$") for token in explanation.tokens]
    heat.set_xticks(range(0, columns, every), labels[::every], rotation=90, family="monospace")
    heat.set_yticks(range(rows), ["embedding", *explanation.labels.values()])
    heat.set_xlabel("token")
    heat.set_xlim(-0.5, columns - 0.5)

    sums = table.sum(0)
    above.bar(range(columns), sums, color=np.where(sums < 0, BLUE, RED))
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
    above.legend(frameon=False, fontsize="small")

    sums = table.sum(1)
    right.barh(range(rows), sums, color=np.where(sums < 0, BLUE, RED))
    right.axvline(0, color="black", linewidth=0.6)
    right.tick_params(labelleft=False)
    right.set_xlabel("per term")

    figure.colorbar(image, ax=right, label="contribution")
    figure.suptitle(title(explanation), fontsize="medium")
    return figure


def title(explanation: "Explanation") -> str:
    """Return what is explained, and its sums.

    Args:
        explanation: what is drawn.
    """
    bias = sum(explanation.biases.values())
    return (
        f"{explanation.target} = {explanation.value:.4f}".replace("$", r"\$")
        + f"\nembedding {explanation.embedding.sum():+.4f}   terms {explanation.term_tokens.sum():+.4f}"
        + f"   biases {bias:+.4f}   (error {float(explanation.completeness.error):+.1e})"
    )
