"""The table of a graph, for a terminal and a notebook."""

from functools import partial

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.heat_map import heat_map
from duat_jax.display.shown_tokens import largest_tokens
from duat_jax.display.tables import (
    FittingTable,
    NumberTable,
    completeness_line,
    number,
    predictions_line,
    token_label,
)
from duat_jax.interpret.attention.result import AttentionScore
from duat_jax.interpret.explain.table import COLUMNS
from duat_jax.interpret.graph.result import Graph, ReadNeuron
from duat_jax.models.vocabulary.token import quoted_label

MOVES, READS = 10, 2
"""The default number of moves and neurons in a table, and the number of parts of what each neuron reads."""

NOTE = (
    "Exact for this text, with attention patterns and norms held: at every token of every stream, what was kept, moved,"
    " written and added sums to it."
)


def _streams(graph: Graph, count: int) -> NumberTable:
    """Return the parts of every stream, the tokens with the largest."""
    sizes = np.abs(graph.streams).max(0)
    shown = largest_tokens(sizes, min(count, int((sizes > 0).sum())))
    table = NumberTable()
    table.add_column("")
    for label in shown.labels([token_label(token) for token in graph.explanation.tokens]):
        table.add_column(Text(label), justify="right")
    table.add_column("added later", justify="right")
    for name, row in zip(graph.rows, graph.streams, strict=True):
        table.add_row(name, *(number(float(part)) for part in (*shown.gathered(row), graph.value - row.sum())))
    return table


def _moves(graph: Graph, count: int) -> NumberTable:
    table, labels = NumberTable(labels=5), [token_label(token) for token in graph.explanation.tokens]
    for column in ("", "from", " ", "to", "  ", "head", "moved"):
        table.add_column(column, justify="left" if column.isspace() else "right")
    for key, source, token, head, part in graph.top_moves(count):
        places = str(source), Text(labels[source]), str(token), Text(labels[token])
        table.add_row(f"layer {key.layer}", *places, str(head), number(part))
    return table


def _neurons(graph: Graph, chosen: tuple[ReadNeuron, ...]) -> NumberTable:
    table, explanation = NumberTable(labels=3), graph.explanation
    for column in ("", "token", "neuron", "contribution", "reads most from", "raises"):
        table.add_column(column, justify="left" if column in ("reads most from", "raises") else "right")
    for each in chosen:
        neuron = each.neuron
        reads = "; ".join(f"{name} {part:+z.2f}" for name, part in each.largest_reads(explanation, READS)[:READS])
        table.add_row(
            explanation.labels[neuron.term],
            str(neuron.token_index),
            str(neuron.neuron),
            number(neuron.contribution),
            Text(f"{each.pre_activation:+z.2f} = {reads}; …"),
            Text(", ".join(quoted_label(output) for output, _ in each.raised[:READS])),
        )
    return table


def _groups(graph: Graph) -> list[RenderableType]:
    if not graph.groups:
        return []
    table = NumberTable(labels=2)
    for column in ("token", "neurons", "predicted", "run again"):
        table.add_column(column, justify="left" if column == "token" else "right")
    for group in graph.groups:
        members = (number(group.predicted), number(group.measured))
        table.add_row(Text(token_label(group.name)), str(len(group.members)), *members)
    title = "All of these neurons of a token switched off: what the table predicts, and the model run again says"
    return [Text(title, style="bold"), table, ""]


def _scores(graph: Graph) -> list[RenderableType]:
    if not graph.scores:
        return []
    labels = [token_label(token) for token in graph.explanation.tokens]
    table = NumberTable(labels=4)
    for column in ("", "head", "at", " ", "to", "  ", "rather than to", "   ", "score"):
        table.add_column(column, justify="left" if column.isspace() else "right")

    def place(score: AttentionScore, token: int) -> tuple[Text, str]:
        return Text(f"{token} {labels[token]}"), f"{score.attention[token]:.1%}"

    for score in graph.scores:
        at = str(score.query), Text(labels[score.query])
        contrast = ("", "") if score.contrast is None else place(score, score.contrast)
        key, share = place(score, score.key)
        row = f"layer {score.layer}", str(score.head), *at, key, share, *contrast
        table.add_row(*row, number(score.value))
    return [Text("Where these heads attend to, and rather than to where", style="bold"), table, ""]


def heat(graph: Graph) -> str:
    """Return the streams' parts as a heat map, as HTML.

    Args:
        graph: what to show.
    """
    return heat_map(graph.rows, [token_label(token) for token in graph.explanation.tokens], graph.streams)


def render(graph: Graph, count: int = MOVES) -> RenderableType:
    """Return the table of a graph: predictions, streams, the largest moves, what neurons read, and completeness.

    Args:
        graph: what to show.
        count: how many of the largest moves and neurons.
    """
    explanation = graph.explanation
    says = [Text.assemble(("The model says:  ", "bold"), predictions_line(explanation.predictions))]
    several = ", the tokens with most" if len(explanation.tokens) > COLUMNS else ""
    neurons: list[RenderableType] = []
    if graph.neurons:
        title = Text("What the neurons with most read and write", style="bold")
        neurons = [title, _neurons(graph, graph.neurons[:count]), ""]
    return Group(
        *(says if explanation.predictions else []),
        Text.assemble(("Explained:  ", "bold"), f"{explanation.target} = {graph.value:z.6f}"),
        "",
        Text(f"Where the value is, after each layer{several}", style="bold"),
        FittingTable(partial(_streams, graph), COLUMNS),
        "",
        Text("What heads move, the largest", style="bold"),
        _moves(graph, count),
        "",
        *_scores(graph),
        *neurons,
        *_groups(graph),
        completeness_line(explanation.completeness),
        completeness_line(graph.completeness, "the furthest sum of a stream"),
        Text(NOTE, style="dim"),
    )
