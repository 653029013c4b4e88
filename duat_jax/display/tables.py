"""Elements of tables: tokens, signed numbers, predictions, the line of completeness."""

from collections.abc import Callable, Collection, Iterable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from duat_jax.display.colours import NEGATIVE, POSITIVE
from duat_jax.forms.completeness import FAILS, HOLDS, Completeness
from duat_jax.inputs.labels import Prediction
from duat_jax.models.vocabulary.token import quoted_token

TITLE = 13
"""The largest width of a title over numbers."""


def wrapped_lines(text: str, width: int) -> str:
    r"""Return a text with its lines wrapped by their width on screen, where a Chinese character has two columns.

    Example:
        >>> wrapped_lines("logit of '你好世界'", 10).split("\n")
        ['logit of', "'你好世界'"]
    """
    return "\n".join(line.plain.rstrip() for line in Text(text).wrap(Console(), width))


def number(value: float) -> Text:
    """Return a part, coloured by its sign; one that is zero to the digits shown has no colour."""
    written = f"{value:+z.4f}"
    return Text(written, style="" if float(written) == 0 else NEGATIVE if value < 0 else POSITIVE)


class NumberTable(Table):
    """A table whose numbers are never cut.

    Where it is too narrow for all columns, they stand in blocks below each other, each with the labels again. Columns
    on the right are numbers, and have no line breaks; their titles have, and so have labels, on the left.

    Args:
        columns: the columns: on the right but for the first one and those of words.
        labels: how many of the first columns are labels.
        title: the title above the table.
        words: the columns of words.
    """

    def __init__(self, *columns: str, labels: int = 1, title: str | None = None, words: Collection[str] = ()) -> None:
        super().__init__(
            box=None,
            padding=(0, 1),
            pad_edge=False,
            header_style="dim",
            title=title,
            title_justify="left",
            title_style="bold",
        )
        self.labels = labels
        for i, column in enumerate(columns):
            self.add_column(column, justify="right" if i and column not in words else "left")

    def add_column(self, header: RenderableType = "", *arguments: Any, **settings: Any) -> None:
        """Add a column."""
        if settings.get("justify") == "right":
            settings.setdefault("no_wrap", True)
            header = Text(wrapped_lines(header.plain if isinstance(header, Text) else str(header), TITLE))
        super().add_column(header, *arguments, overflow="fold", **settings)

    def blocks(self, console: Console, options: ConsoleOptions) -> list[Table]:
        """Return tables that fit, each with the labels and some of the other columns."""

        def uncut(column: Column) -> int | None:
            """Return the width that a column without line breaks needs; rich's own least width is that of a word."""
            if not column.no_wrap:
                return None
            return max(Measurement.get(console, options, cell).maximum for cell in (column.header, *column.cells))

        def with_columns(columns: list[Column]) -> Table:
            table = copy(self)
            table.columns = [
                replace(column, _index=i, min_width=uncut(column)) for i, column in enumerate(labels + columns)
            ]
            return table

        def fits(columns: list[Column]) -> bool:
            needed = Table.__rich_measure__(with_columns(columns), console, options.update(max_width=10**4))
            return needed.minimum <= options.max_width

        labels, rest = self.columns[: self.labels], self.columns[self.labels :]
        parts: list[list[Column]] = [[]]
        for column in rest:
            if parts[-1] and not fits([*parts[-1], column]):
                parts.append([])
            parts[-1].append(column)
        return [with_columns(part) for part in parts]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        for i, block in enumerate(self.blocks(console, options)):
            if i:
                yield Text()
                block.title = None
            yield from Table.__rich_console__(block, console, options)


class FittingTable:
    """A table of as many tokens as fit, the largest ones.

    Args:
        of_tokens: makes the table of a number of tokens.
        most: the largest number of tokens.
    """

    def __init__(self, of_tokens: Callable[[int], NumberTable], most: int) -> None:
        self.of_tokens, self.most = of_tokens, most

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        for count in range(self.most, 0, -1):
            table = self.of_tokens(count)
            if len(table.blocks(console, options)) == 1:
                break
        yield table


def predictions_line(predictions: tuple[Prediction, ...]) -> str:
    """Return predictions with their probabilities, in one line."""
    return "   ".join(f"{quoted_token(token)} {probability:.1%}" for token, probability in predictions)


def completeness_line(completeness: Completeness, label: str = "value") -> Text:
    """Return value, sum, error, tolerance and verdict in one line, and a note on a failure in a second one."""
    verdict = completeness.verdict
    return Text.assemble(
        (f"{label} ", "bold"),
        f"{float(completeness.value):.7g}",
        ("   sum of all parts ", "bold"),
        f"{float(completeness.sum):.7g}",
        ("   error ", "bold"),
        f"{float(completeness.error):+.1e}",
        f"  {'>' if verdict == FAILS else '≤'} tolerance {float(completeness.tolerance):.1e} ({completeness.dtype}): ",
        (verdict, "bold" if verdict == HOLDS else "bold reverse"),
        *([] if completeness.note is None else [f"\n{completeness.note}"]),
    )


def note_lines(notes: Iterable[str]) -> list[Text]:
    """Return notes on a result, each in a line of its own."""
    return [Text(note, style="yellow") for note in notes]
