"""The picture of an attention score: pairs of tokens and pairs of parts, with their sums."""

import numpy as np
from matplotlib.figure import Figure, SubFigure

from duat_jax.display.colours import DIVERGING, NEGATIVE, POSITIVE
from duat_jax.display.fonts import families
from duat_jax.display.pictures import LABELLED, styled
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
    tokens, by_token = score.by_token()
    labels = [f"{place} {token_label(token)}" for place, token in enumerate(tokens[:-1])]
    parts, by_part = score.by_part()
    # Of a causal model, nothing comes from what stands behind the two tokens.
    last = max(score.query, score.key, score.versus or 0)
    kept = [*range(last + 1), len(tokens) - 1] if not by_token[last + 1 : -1].any() else list(range(len(tokens)))
    labels = [[*labels, BIASES][place] for place in kept]
    by_token = by_token[np.ix_(kept, kept)]

    sizes = [len(labels), len(parts)]
    width, height = (2 * 3.2 + 0.26 * sum(np.clip(sizes, 8, 40))), 3.6 + 0.26 * np.clip(max(sizes), 8, 40)
    figure = Figure(figsize=(width, height))
    grid = figure.add_gridspec(1, 2, width_ratios=[3.2 + 0.26 * np.clip(size, 8, 40) for size in sizes])
    _panel(figure.add_subfigure(grid[0]), by_token, labels, "token")
    _panel(figure.add_subfigure(grid[1]), by_part, list(parts), "part")
    attention = f"attention {score.attention[score.key]:.1%}"
    if score.versus is not None:
        attention += f" against {score.attention[score.versus]:.1%}"
    title = f"{score.label}\nscore {score.value:+.4f}   {attention}   (error {float(score.completeness.error):+.1e})"
    figure.suptitle(title.replace("$", r"\$"))
    return figure


def _panel(panel: SubFigure, table: np.ndarray, labels: list[str], what: str) -> None:
    count = len(labels)
    limit = np.abs(table).max() or 1.0
    grid = panel.add_gridspec(2, 2, width_ratios=(5, 1), height_ratios=(1, 5))
    heat = panel.add_subplot(grid[1, 0])
    above = panel.add_subplot(grid[0, 0], sharex=heat)
    right = panel.add_subplot(grid[1, 1], sharey=heat)

    image = heat.imshow(table, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto")
    every = -(-count // LABELLED)
    shown = [label.replace("$", r"\$") for label in labels][::every]
    heat.set_xticks(range(0, count, every), shown, rotation=90, family=families("monospace"), fontsize="small")
    heat.set_yticks(range(0, count, every), shown, family=families("monospace"), fontsize="small")
    heat.set_xlabel(f"{what} of the key")
    heat.set_ylabel(f"{what} of the query")

    of_keys, of_queries = table.sum(0), table.sum(1)
    above.bar(range(count), of_keys, color=np.where(of_keys < 0, NEGATIVE, POSITIVE))
    above.axhline(0, color="black", linewidth=0.6)
    above.tick_params(labelbottom=False)
    right.barh(range(count), of_queries, color=np.where(of_queries < 0, NEGATIVE, POSITIVE))
    right.axvline(0, color="black", linewidth=0.6)
    right.tick_params(labelleft=False)
    panel.colorbar(image, ax=right, label="contribution")
