"""Tables in Markdown, and the names of their cells."""

from collections.abc import Iterable, Iterator, Sequence

Fields = dict[str, str]
"""The fields of a study, by name: a number with its digits, or a block of Markdown."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown.

    Example:
        >>> table(["method", "cost"], [["secant", "4.0"]])
        ['| method | cost |', '|---|---|', '| secant | 4.0 |']
    """
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]


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
