"""Numbers and tables as the pages show them: intervals, shares, tables in Markdown, and the names of their cells."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from scipy.stats import binomtest

from duat_jax.evaluation.statistics import IntervalEstimate, bootstrap

Fields = dict[str, str]
"""The fields of a study, by name: a number with its digits, or a block of Markdown."""


def interval(numbers: IntervalEstimate | Sequence[float] | np.ndarray, digits: int = 3, sign: str = "") -> str:
    """Format an estimate with its 95 % confidence interval, as on every page: `0.50 [0.41, 0.62]`."""
    return (numbers if isinstance(numbers, IntervalEstimate) else bootstrap(np.asarray(numbers, float))).written(
        digits, sign
    )


def proportion(hits: Sequence[bool] | np.ndarray) -> IntervalEstimate:
    """Return the share of units for which something holds, with Clopper and Pearson's interval."""
    found = binomtest(int(np.sum(hits)), len(hits))
    return IntervalEstimate(float(found.statistic), *map(float, found.proportion_ci(method="exact")))


def counted(hits: Sequence[bool] | np.ndarray) -> str:
    """Format how often something holds, in per cent, with an interval, which 0 and 100 % have, too.

    Example:
        >>> counted([True, False, False, False])
        '25.0 [0.6, 80.6] %'
    """
    return f"{IntervalEstimate(*(100 * number for number in proportion(hits))).written(1)} %"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown.

    Example:
        >>> table(["method", "cost"], [["secant", "4.0"]])
        ['| method | cost |', '|---|---|', '| secant | 4.0 |']
    """
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]


def sections(parts: Mapping[str, Iterable[str]]) -> str:
    """Return a text of several parts, each under its heading.

    Example:
        >>> sections({"Errors": ["| method | error |"]}).splitlines()
        ['### Errors', '', '| method | error |']
    """
    return "\n".join(line for title, lines in parts.items() for line in (f"### {title}", "", *lines, ""))


def tables_of(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield every table of a text with its heading, as rows of cells, the head first."""
    title, rows = "", list[list[str]]()
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif rows:
            yield title, [rows[0], *rows[2:]]
            rows = []
        if line.startswith("#"):
            title = line.lstrip("# ")


def cells(text: str) -> Fields:
    """Return every cell of a text's tables, by the name `heading / row / column`."""
    # A row is called by its first cell, or by as many of its first cells as tell it from the table's other rows. Of a
    # number with an interval, `heading / row / column / value` is the number alone.
    fields: Fields = {}
    for title, (head, *rows) in tables_of(text):
        named = next(n for n in range(1, len(head) + 1) if len({tuple(row[:n]) for row in rows}) == len(rows))
        for row in rows:
            name = ", ".join(filter(None, row[:named]))
            for column, cell in zip(head[named:], row[named:], strict=True):
                field = f"{title} / {name} / {column}".translate(str.maketrans("", "", "*`"))
                fields |= {field: cell, f"{field} / value": cell.partition(" [")[0]}
    return fields
