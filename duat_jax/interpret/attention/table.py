"""The table of an attention score, for a terminal and a notebook."""

import math

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.tables import DIFFERENCE, NumberTable, completeness_line, number, quoted_token, sides, token_label
from duat_jax.interpret.attention.result import BIASES, AttentionScore, Source
from duat_jax.interpret.explain.table import TERMS

ATTENDED, TOKENS = 5, 8
"""The numbers of most attended tokens and of tokens with the largest sums in a table."""


def _table(*columns: str, left: tuple[str, ...], labels: int) -> NumberTable:
    table = NumberTable(labels)
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right")
    return table


def _pairs(score: AttentionScore, count: int) -> NumberTable:
    table = _table(
        "of the query",
        "token",
        " ",
        "of the key",
        "token ",
        "  ",
        "contribution",
        left=("of the query", "of the key", " ", "  "),
        labels=6,
    )

    def cells(source: Source) -> tuple[str, str, Text]:
        if source.token is None:
            return source.part, "", Text("")
        return source.part, str(source.token), Text(token_label(score.tokens[source.token]))

    for query, key, contribution in score.top(count):
        table.add_row(*cells(query), *cells(key), number(contribution))
    return table


def _sides(score: AttentionScore) -> tuple[NumberTable, NumberTable]:
    """Return the sums of each part and each token on the query and on the key side."""
    parts, by_part = score.by_part()
    of_parts = _table("part", "of the query", "of the key", left=("part",), labels=1)
    for name, query, key in zip(parts, by_part.sum(1), by_part.sum(0), strict=True):
        of_parts.add_row(name, number(float(query)), number(float(key)))
    total = number(float(by_part.sum()))
    of_parts.add_row("sum", total, total, style="bold")

    tokens, by_token = score.by_token()
    query, key = by_token.sum(1), by_token.sum(0)
    sizes = np.abs(query[:-1]) + np.abs(key[:-1])
    order = [place for place in np.argsort(-sizes, kind="stable").tolist() if sizes[place]]
    places, others = sorted(order[:TOKENS]), order[TOKENS:]
    of_tokens = _table("token", " ", "of the query", "of the key", left=(" ",), labels=2)

    def add(place: str, label: str, rows: list[int]) -> None:
        sums = (number(float(side[rows].sum())) for side in (query, key))
        of_tokens.add_row(place, Text(label), *sums)

    for place in places:
        add(str(place), token_label(tokens[place]), [place])
    if others:
        add("", f"{len(others)} others", others)
    add("", BIASES, [-1])
    of_tokens.add_row("", "sum", total, total, style="bold")
    return of_parts, of_tokens


def _attention(score: AttentionScore) -> str:
    order = np.argsort(-score.attention, kind="stable")[:ATTENDED]
    return "   ".join(f"{token} {quoted_token(score.tokens[token])} {score.attention[token]:.1%}" for token in order)


def meaning(score: AttentionScore) -> str:
    """Return what a score says of the attention, in one sentence.

    Args:
        score: the result.
    """
    if score.contrast is None:
        return (
            "One score alone says little: what every key's score has in common changes no attention. Name another key,"
            " and the difference of the two is explained."
        )
    key, contrast = score.attention[score.key], score.attention[score.contrast]
    return (
        f"{sides(f'token {score.key}', f'token {score.contrast}')}."
        f" Attention is {100 * key:.3g}% against {100 * contrast:.3g}%, a ratio of {math.exp(score.value):.4g};"
        f" {DIFFERENCE} is its logarithm, {score.value:.4g}."
    )


def render(score: AttentionScore, count: int = TERMS) -> RenderableType:
    """Return the table of an attention score: attention, the largest pairs, the sums on either side, completeness.

    Args:
        score: what to show.
        count: how many of the biggest pairs.
    """
    of_parts, of_tokens = _sides(score)
    return Group(
        Text.assemble(("The head attends to:  ", "bold"), _attention(score)),
        Text.assemble(("Explained:  ", "bold"), f"{score.label} = {score.value:+z.6f}"),
        Text(meaning(score), style="dim"),
        "",
        Text(f"The {count} biggest of {score.pairs.size} pairs of sources", style="bold"),
        _pairs(score, count),
        "",
        Text("Each part, with everything on the other side", style="bold"),
        of_parts,
        "",
        Text("Each token, with everything on the other side", style="bold"),
        of_tokens,
        "",
        completeness_line(score.completeness),
    )
