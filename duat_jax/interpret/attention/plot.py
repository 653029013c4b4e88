"""The picture of an attention score: pairs of tokens and pairs of parts, with their sums."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage

from duat_jax.display.colours import NEGATIVE, POSITIVE
from duat_jax.display.pictures import (
    HEADING,
    add_colour_bar,
    colour_scale,
    draw_heat,
    label_tokens,
    styled,
    titled,
    wrapped,
)
from duat_jax.display.shown_tokens import tokens_of_picture
from duat_jax.display.tables import token_label
from duat_jax.interpret.attention.result import BIASES, AttentionScore


@styled
def draw(score: AttentionScore) -> Figure:
    """Return the contributions of all pairs of tokens and of all pairs of parts to the score, side by side.

    Rows are what the query is made of, columns what the key is made of; the bars are their sums. Red raises the score,
    blue lowers it.

    Args:
        score: what to draw.
    """
    labels, by_token = _of_tokens(score)
    parts, by_part = score.by_part()
    sizes = np.clip([len(labels), len(parts)], 8, 42)
    figure = Figure(figsize=(2 * 3.2 + 0.26 * sum(sizes), 3.6 + 0.26 * max(sizes)))
    grid = figure.add_gridspec(1, 2, width_ratios=[3.2 + 0.26 * size for size in sizes])
    _panel(figure.add_subfigure(grid[0]), by_token, labels, "token")
    _panel(figure.add_subfigure(grid[1]), by_part, list(parts), "part")
    attention = f"attention {score.attention[score.key]:.1%}"
    if score.contrast is not None:
        attention += f" against {score.attention[score.contrast]:.1%}"
    sums = f"score {score.value:+z.4f}   {attention}   (error {float(score.completeness.error):+.1e})"
    titled(figure, score.label, sums)
    return figure


def draw_panel(axes: Axes, score: AttentionScore) -> None:
    """Draw the contributions of all pairs of tokens.

    Args:
        axes: where.
        score: what to draw.
    """
    labels, by_token = _of_tokens(score)
    drawn = _draw_pairs(axes, by_token, labels, "token")
    axes.set_title(wrapped(f"{score.label}: {score.value:+z.4f}", HEADING))
    add_colour_bar(drawn, axes, "contribution")


def _of_tokens(score: AttentionScore) -> tuple[list[str], Float[np.ndarray, "places places"]]:
    """Return the labels of tokens and biases, and what their pairs contribute; of a long text the largest tokens."""
    tokens, by_token = score.by_token()
    labels = [f"{place} {token_label(token)}" for place, token in enumerate(tokens[:-1])]
    # Of a causal model, nothing comes from what stands behind the two tokens.
    last = max(score.query, score.key, score.contrast or 0) + 1
    if not by_token[last:-1].any():
        labels, by_token = labels[:last], np.delete(np.delete(by_token, slice(last, -1), 0), slice(last, -1), 1)
    shown = tokens_of_picture(np.vstack([by_token[:, :-1], by_token.T[:, :-1]]))

    def gathered(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([shown.gathered(rows[:, :-1]), rows[:, -1:]], -1)

    return [*shown.labels(labels), BIASES], gathered(gathered(by_token).T).T


def _draw_pairs(axes: Axes, table: np.ndarray, labels: list[str], what: str) -> AxesImage:
    drawn = draw_heat(axes, table, colour_scale(table))
    label_tokens(axes.xaxis, labels, rotation=90, fontsize="small")
    label_tokens(axes.yaxis, labels, fontsize="small")
    axes.set_xlabel(f"{what} of the key")
    axes.set_ylabel(f"{what} of the query")
    return drawn


def _panel(panel: SubFigure, table: np.ndarray, labels: list[str], what: str) -> None:
    grid = panel.add_gridspec(2, 2, width_ratios=(5, 1), height_ratios=(1, 5))
    heat = panel.add_subplot(grid[1, 0])
    above = panel.add_subplot(grid[0, 0], sharex=heat)
    right = panel.add_subplot(grid[1, 1], sharey=heat)
    drawn = _draw_pairs(heat, table, labels, what)

    of_keys, of_queries = table.sum(0), table.sum(1)
    above.bar(range(len(labels)), of_keys, color=np.where(of_keys < 0, NEGATIVE, POSITIVE))
    above.axhline(0, color="black", linewidth=0.6)
    above.tick_params(labelbottom=False)
    right.barh(range(len(labels)), of_queries, color=np.where(of_queries < 0, NEGATIVE, POSITIVE))
    right.axvline(0, color="black", linewidth=0.6)
    right.tick_params(labelleft=False)
    add_colour_bar(drawn, right, "contribution")
