"""The table of a contrast, for a terminal and a notebook."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.heat_map import heat_map
from duat_jax.display.shown_tokens import largest_tokens
from duat_jax.display.tables import (
    DIFFERENCE,
    FittingTable,
    NumberTable,
    completeness_line,
    note_lines,
    number,
    predictions_line,
    token_label,
)
from duat_jax.inputs.labels import Prediction
from duat_jax.interpret.contrast.result import Contrast
from duat_jax.interpret.explain.table import COLUMNS
from duat_jax.transform.keys import Key

UNITS = 5
"""The default number of heads and neurons in a table."""

UNPAIRED = "–"
"""The label of a place where an aligned text has no token of its own."""

NOTE = "Exact for this pair of inputs: in every row the parts sum to the difference. Another pair has other parts."
LESS = (
    "Exact for this pair of inputs: in every row the parts of all tokens, with what moved or jumped after it, sum to"
    " the difference. Another pair has other parts."
)


def token_labels(contrast: Contrast, between: str = " ") -> list[str]:
    """Return the tokens with their white space visible; where the only other text has another token, that one too.

    Args:
        contrast: what to show.
        between: what stands between the two.
    """
    labels, others = [token_label(token) for token in contrast.tokens], other_labels(contrast)
    return [
        one if one == other else f"{one}{between}({other})" for one, other in zip(labels, others or labels, strict=True)
    ]


def other_labels(contrast: Contrast) -> list[str]:
    """Return the tokens of the only other text, `UNPAIRED` where an alignment leaves none; empty without such a text.

    Args:
        contrast: what to show.
    """
    only = contrast.references[0]
    if len(contrast.references) > 1:
        return []
    return [UNPAIRED if i in only.unpaired else token_label(token) for i, token in enumerate(only.tokens)]


def both_sides(contrast: Contrast) -> list[tuple[str, float, tuple[Prediction, ...]]]:
    """Return of each input its name, with its side of the difference, the number there, and what the model says.

    Args:
        contrast: what to show.
    """
    several = len(contrast.references) > 1
    return [
        (f"A: the {'text' if contrast.image is None else 'image'}", contrast.value, contrast.predictions),
        *((each.name if several else f"B: {each.name}", each.value, each.predictions) for each in contrast.references),
        *([("B: the mean of the references", contrast.value - contrast.difference, ())] if several else []),
    ]


def layer_of(key: Key) -> str:
    """Return the layer of a head or a neuron, in words.

    Args:
        key: its mark.
    """
    number = [f"[{key.number}]"] if key.number else []
    return " ".join([*(part.replace("layers.", "layer ") for part in key.scope), *number]) or str(key)


def _said(contrast: Contrast) -> list[RenderableType]:
    """Return the most probable outputs and the target's value on each input."""
    table = NumberTable()
    table.add_column("")
    table.add_column("the number", justify="right")
    if contrast.predictions:
        table.add_column("the model says")
    for name, value, predictions in both_sides(contrast):
        table.add_row(name, f"{value:+z.4f}", *([predictions_line(predictions)] if contrast.predictions else []))
    table.add_row(DIFFERENCE, number(contrast.difference))
    return [table]


def _flow(contrast: Contrast, count: int) -> NumberTable:
    """Return the flow, the tokens with the largest parts."""
    table, labels = NumberTable(), token_labels(contrast, "\n")
    sizes = np.abs(contrast.flow).max(0)
    shown = largest_tokens(sizes, min(count, int((sizes > 0).sum())))
    table.add_column("")
    for label in shown.labels(labels):
        table.add_column(Text(label), justify="right")
    table.add_column(DIFFERENCE, justify="right", style="bold")
    for name, row in zip(contrast.rows, contrast.flow, strict=True):
        table.add_row(name, *(number(float(part)) for part in (*shown.gathered(row), row.sum())))
    return table


def _units(
    title: str, kind: str, entries: Sequence[tuple[Key, int, int, float]], contrast: Contrast
) -> list[RenderableType]:
    if not entries:
        return []
    table, labels = NumberTable(labels=4), token_labels(contrast)
    for column in ("", "token", " ", kind, "part"):
        table.add_column(column, justify="left" if column.isspace() else "right")
    for key, token, unit, part in entries:
        table.add_row(layer_of(key), str(token), Text(labels[token]), str(unit), number(part))
    return [Text(title, style="bold"), table, ""]


def _named(title: str, parts: dict[str, float]) -> list[RenderableType]:
    found = {name: part for name, part in parts.items() if part}
    if not found:
        return []
    table = NumberTable()
    table.add_column("name")
    table.add_column("part", justify="right")
    for name, part in sorted(found.items(), key=lambda item: -abs(item[1])):
        table.add_row(Text(name), number(part))
    return [Text(title, style="bold"), table, ""]


def heat(contrast: Contrast) -> str:
    """Return the flow as a heat map, as HTML.

    Args:
        contrast: what to show.
    """
    return heat_map(contrast.rows, token_labels(contrast, "\n"), contrast.flow)


def render(contrast: Contrast, count: int = UNITS) -> RenderableType:
    """Return the table of a contrast: predictions on both inputs, the flow, heads, neurons, and completeness.

    Args:
        contrast: what to show.
        count: how many of the biggest heads and neurons.
    """
    moved = {str(key): part for key, part in contrast.moved.items()}
    several = ", the tokens with most" if len(contrast.tokens) > COLUMNS else ""
    return Group(
        Text.assemble(("Explained:  ", "bold"), f"the difference of the {contrast.target}"),
        *_said(contrast),
        "",
        Text(f"Where the difference is, after each layer{several}", style="bold"),
        FittingTable(partial(_flow, contrast), COLUMNS),
        "",
        *_units("The heads with most, and where they carry it", "head", contrast.top_heads(count), contrast),
        *_units("The neurons with most", "neuron", contrast.top_neurons(count), contrast),
        *_named("What was held at its midpoint, and moved", moved),
        *_named("Discontinuities: what has no slope between the two", contrast.discontinuities),
        completeness_line(contrast.completeness, "difference"),
        *note_lines(contrast.notes),
        Text(LESS if contrast.leaves_out else NOTE, style="dim"),
    )
