"""The table of an explanation, for a terminal and a notebook."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.heat_map import heat_map
from duat_jax.display.shown_tokens import largest_tokens
from duat_jax.display.tables import FittingTable, NumberTable, completeness_line, number, predictions_line, token_label
from duat_jax.interpret.explain.result import Explanation

TERMS, COLUMNS, BIASES = 10, 6, 5
"""The numbers of terms, token columns and biases in a table."""

USE = "Direct effects, exact. For what matters, ask a contrast (duat.contrast): --baseline mean, or --reference TEXT."
"""The note under the table of a single input."""


def _terms(explanation: Explanation, count: int) -> NumberTable:
    table = NumberTable(labels=4)
    for column in ("term", "token", "", "neuron", "contribution", "= coefficient", "× activation"):
        table.add_column(column, justify="left" if column in ("", "term") else "right")
    labels = explanation.labels
    for neuron in explanation.top(count):
        label = Text(token_label(explanation.tokens[neuron.token_index]))
        factors = (Text(f"{factor:+z.4f}") for factor in (neuron.coefficient, neuron.activation))
        table.add_row(
            labels[neuron.term],
            str(neuron.token_index),
            label,
            str(neuron.neuron),
            number(neuron.contribution),
            *factors,
        )
    return table


def _layers(explanation: Explanation, count: int) -> NumberTable:
    terms, embedding = explanation.term_tokens, explanation.embedding
    totals = embedding + terms.sum(0)
    shown = largest_tokens(np.abs(totals) + np.abs(explanation.collapse), count)
    table = NumberTable()
    table.add_column("")
    for label in shown.labels([token_label(token) for token in explanation.tokens]):
        table.add_column(Text(label), justify="right")
    table.add_column("all", justify="right", style="bold")

    def add(name: str, row: np.ndarray) -> None:
        table.add_row(name, *(number(float(value)) for value in (*shown.gathered(row), row.sum())))

    add("embedding", embedding)
    for label, row in zip(explanation.labels.values(), terms, strict=True):
        add(label, row)
    add("sum", totals)
    add("collapse", explanation.collapse)
    return table


def _on_the_linear_path(explanation: Explanation) -> list[tuple[str, float]]:
    """Return the biases by size, without those inside a term or a held pattern, which have none of their own."""
    biases = ((str(key), value) for key, value in explanation.biases.items() if value != 0)
    return sorted(biases, key=lambda item: -abs(item[1]))


def _biases(explanation: Explanation) -> list[RenderableType]:
    """Return the table of the largest biases; nothing for a model without any."""
    ordered = _on_the_linear_path(explanation)
    if not ordered:
        return []
    table = NumberTable()
    table.add_column("name")
    table.add_column("contribution", justify="right")
    for name, value in ordered[:BIASES]:
        table.add_row(name, number(value))
    remaining = ordered[BIASES:]
    if remaining:
        table.add_row(f"{len(remaining)} others", number(sum(value for _, value in remaining)))
    title = f"The biggest of {len(ordered)} biases and norm offsets on the linear path"
    return [Text(title, style="bold"), table, ""]


def heat(explanation: Explanation) -> str:
    """Return the table of layers and tokens as a heat map, as HTML.

    Args:
        explanation: what to show.
    """
    rows = ["embedding", *explanation.labels.values()]
    numbers = np.concatenate([explanation.embedding[None], explanation.term_tokens])
    return heat_map(rows, [token_label(token) for token in explanation.tokens], numbers)


def _named(explanations: list[Any], name: str = "") -> Iterator[tuple[str, Explanation]]:
    """Yield every explanation of a list, or of a list of lists, with its indices."""
    for i, each in enumerate(explanations):
        if isinstance(each, list):
            yield from _named(each, f"{name}[{i}]")
        else:
            yield f"{name}[{i}]", each


def render_many(explanations: list[Any]) -> RenderableType:
    """Return a table with a row for each of several explanations: target, value and completeness.

    Args:
        explanations: a list of explanations, or of such lists.
    """
    table = NumberTable(labels=2)
    for column in ("", "explained", "tokens", "value", "completeness"):
        table.add_column(column, justify="right" if column in ("tokens", "value") else "left")
    for name, each in _named(explanations):
        verdict = each.completeness.verdict
        table.add_row(Text(name), Text(each.target.headline), str(len(each.tokens)), f"{each.value:z.6f}", verdict)
    return table


def render(explanation: Explanation, count: int = TERMS) -> RenderableType:
    """Return the table of an explanation: predictions, the largest terms, term × token, biases, completeness.

    Args:
        explanation: what to show.
        count: how many of the biggest terms.
    """
    head: list[RenderableType] = []
    if explanation.predictions:
        head.append(Text.assemble(("The model says:  ", "bold"), predictions_line(explanation.predictions)))
    head.append(Text.assemble(("Explained:  ", "bold"), f"{explanation.target} = {explanation.value:z.6f}"))
    collapse_note = (
        "collapse: the tokens' parts of W(x0) x0 in W(x0) x0 + b(x0), with the constant"
        f" b(x0) = {explanation.collapse_bias:+z.4f}"
    )
    total = explanation.embedding.sum(), explanation.term_tokens.sum(), sum(explanation.biases.values())
    return Group(
        *head,
        "",
        Text(f"The {count} biggest terms", style="bold"),
        _terms(explanation, count),
        "",
        Text("Term × token, those with most" if len(explanation.tokens) > COLUMNS else "Term × token", "bold"),
        FittingTable(partial(_layers, explanation), COLUMNS),
        Text(collapse_note, style="dim"),
        "",
        *_biases(explanation),
        Text.assemble(
            ("embedding ", "bold"),
            f"{total[0]:+z.4f}",
            (" + terms ", "bold"),
            f"{total[1]:+z.4f}",
            (" + biases ", "bold"),
            f"{total[2]:+z.4f}",
        ),
        completeness_line(explanation.completeness),
        Text(USE, style="dim"),
    )
