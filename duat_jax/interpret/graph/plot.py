"""The picture of a graph: where the value is after each layer, and the largest moves of heads as arrows."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
from duat_jax.interpret.graph.result import Graph

ARROWS = 40
"""The number of moves that are drawn."""


@styled
def draw(graph: Graph) -> Figure:
    """Return the picture of a graph: streams from the embedding (bottom) to the last one, by tokens.

    Red raises the value, blue lowers it. Arrows are the largest moves of single heads.

    Args:
        graph: what to draw.
    """
    shown = tokens_of_picture(graph.streams)
    rows, columns = shown.gathered(graph.streams).shape
    figure = Figure(figsize=(min(26.0, 3.2 + max(0.42 * columns, 3.6)), 2.2 + max(0.36 * rows, 2.4)))
    axes = figure.subplots()
    _draw(axes, graph)
    axes.set_title("")
    explanation = graph.explanation
    titled(
        figure, explanation.target.headline, f"{graph.value:+z.4f}: where it is after each layer, and what heads move"
    )
    return figure


def draw_panel(axes: Axes, graph: Graph) -> None:
    """Draw where the value is after each layer, with the largest moves of heads as arrows.

    Args:
        axes: where.
        graph: what to draw.
    """
    _draw(axes, graph)
    axes.set_title(wrapped(f"{graph.explanation.target}: {graph.value:+z.4f}", HEADING))


def _draw(axes: Axes, graph: Graph) -> None:
    shown = tokens_of_picture(graph.streams)
    table = shown.gathered(graph.streams)
    drawn = draw_heat(axes, table, colour_scale(table), origin="lower", alpha=0.6)
    label_tokens(axes.xaxis, shown.labels([token_label(token) for token in graph.explanation.tokens]), rotation=90)
    axes.set_yticks(range(len(graph.rows)), graph.rows)
    add_colour_bar(drawn, axes, "part of the value")
    places = {int(token): column for column, token in enumerate(shown.alone)}
    moves = [m for m in graph.top_moves(ARROWS) if m.source != m.token and {m.source, m.token} <= places.keys()]
    largest = max((abs(move.part) for move in moves), default=1.0)
    layers = {key: row for row, key in enumerate(graph.moves)}
    for move in moves:
        start, end = (places[move.source], layers[move.key]), (places[move.token], layers[move.key] + 1)
        width = float(np.clip(3 * abs(move.part) / largest, 0.3, 3))
        colour = POSITIVE if move.part > 0 else NEGATIVE
        arrow = {"arrowstyle": "-|>", "lw": width, "color": colour, "shrinkA": 4, "shrinkB": 4}
        axes.annotate("", end, start, arrowprops=arrow)
