"""The table of a result, for a terminal and a notebook: a function of its view."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.neurons import largest_entries
from duat_jax.display.shown_tokens import largest_tokens
from duat_jax.display.tables import (
    FittingTable,
    NumberTable,
    completeness_line,
    note_lines,
    number,
    predictions_line,
)
from duat_jax.display.view import Cell, ModelRun, NamedParts, Table, UnitTable, View

COLUMNS, UNITS, NAMED = 6, 10, 5
"""The default numbers of tokens, of units of each kind, and of entries of a list."""


def render(view: View, count: int = UNITS) -> RenderableType:
    """Return the table of a result: runs, tables, rows by tokens, the largest units, lists, and completeness."""
    rows = rows_of(view)
    return Group(
        Text.assemble(("Explained:  ", "bold"), f"{view.target} = {view.value:z.4f}"),
        *([_runs(view)] if view.runs else []),
        *([] if view.graph else _tables(view, count)),
        *(_titled(_heading(view), FittingTable(partial(_rows, view, rows), COLUMNS)) if rows else []),
        *(_tables(view, count) if view.graph else _units(view, count)),
        *(part for listed in view.added for part in _named(listed)),
        "",
        *_account(view),
        *([] if view.completeness is None else [completeness_line(view.completeness, view.value_name)]),
        *(completeness_line(completeness, name) for name, completeness in view.sums.items()),
        *note_lines(view.notes),
        *(
            []
            if view.completeness is not None and view.completeness.verdict == "fails"
            else [Text(view.exact, style="dim")]
        ),
    )


def render_many(views: Sequence[tuple[str, View]]) -> RenderableType:
    """Return a table with a row for each of several results: target, value and completeness."""
    table = NumberTable(
        "", "explained", "tokens", "value", "completeness", labels=2, words=("explained", "completeness")
    )
    for name, view in views:
        verdict = "" if view.completeness is None else view.completeness.verdict
        table.add_row(Text(name), Text(view.target), str(len(view.tokens)), f"{view.value:z.6f}", verdict)
    return table


def _titled(title: str, table: RenderableType, note: str = "") -> list[RenderableType]:
    heading = [Text(title, style="bold")] if title else []
    return ["", *heading, table, *([Text(note, style="dim")] if note else [])]


def _runs(view: View) -> RenderableType:
    """Return the value and the most probable outputs of each run, and the difference of several."""
    table, predicted = NumberTable("", "the number"), any(run.predictions for run in view.runs)
    if predicted:
        table.add_column("the model says")

    def add(run: ModelRun) -> None:
        table.add_row(Text(run.name), f"{run.value:+z.4f}", *([predictions_line(run.predictions)] if predicted else []))

    for run in view.runs:
        add(run)
    if len(view.runs) > 1:
        table.add_row(view.value_name, number(view.value))
    return table


def _cell(cell: Cell) -> Text:
    if isinstance(cell, float | np.floating):
        return number(float(cell))
    return Text("" if cell is None else str(cell))


def _table(table: Table, count: int) -> RenderableType:
    shown = NumberTable(labels=table.labels)
    listed = table.rows[:count] if table.ranked else table.rows
    rows = [*listed, *([] if table.total is None else [table.total])]
    for title, *cells in zip(table.columns, *rows, strict=True):
        words = all(isinstance(cell, str | None) for cell in cells)
        shown.add_column(title, justify="left" if words else "right")
    for row in listed:
        shown.add_row(*map(_cell, row))
    if table.total is not None:
        shown.add_row(*map(_cell, table.total), style="bold")
    return shown


def _tables(view: View, count: int) -> list[RenderableType]:
    return [part for table in view.tables for part in _titled(table.title, _table(table, count), table.note)]


def _heading(view: View) -> str:
    heading = view.heading if view.graph is None else "Where the value is, after each layer"
    return heading + (", the tokens with most" if len(view.tokens) > COLUMNS else "")


def _rows(view: View, rows: list[tuple[str, np.ndarray]], count: int) -> NumberTable:
    """Return the rows at the tokens with the largest parts."""
    sizes = np.abs([parts for _, parts in rows]).max(0)
    shown = largest_tokens(sizes, max(1, min(count, int((sizes > 0).sum()))))
    table = NumberTable()
    table.add_column("")
    labels, others = token_labels(view, "\n"), _others(view, shown.others.tolist())
    for label in (*(labels[token] for token in shown.alone), *others):
        table.add_column(Text(label), justify="right")
    table.add_column("all", justify="right", style="bold")
    for name, parts in rows:
        together = (parts[tokens].sum() for tokens in others.values())
        table.add_row(name, *(number(float(part)) for part in (*parts[shown.alone], *together, parts.sum())))
    return table


def _others(view: View, others: list[int]) -> dict[str, list[int]]:
    """Return the tokens that share a column, by its label: beside a text the patches of an image have their own."""
    image = view.image
    if image is None or not view.tokens[image.text]:
        return {f"{len(others)} others": others} if others else {}
    of_image = [token for token in others if image.patch_of(token)]
    rest = [token for token in others if not image.patch_of(token)]
    groups = (f" other {'frames' if image.sound else 'patches'}", of_image), (" others", rest)
    return {f"{len(tokens)}{label}": tokens for label, tokens in groups if tokens}


def rows_of(view: View) -> list[tuple[str, np.ndarray]]:
    """Return name and parts of each row: of a graph its streams, else the rows and the colourings that are no rows."""
    if view.graph is not None:
        return list(zip(view.graph.rows, np.asarray(view.graph.streams, float), strict=True))
    rows = [(row.name, np.asarray(row.parts, float)) for row in view.rows]
    for colouring in view.all_colourings:
        if not any(np.array_equal(colouring.parts, parts) for _, parts in rows):
            rows.append((colouring.name, np.asarray(colouring.parts, float)))
    return rows


def token_labels(view: View, between: str = " ") -> list[str]:
    """Return the tokens; where the other text has another one, that one too."""
    pairs = zip(view.tokens, view.others or view.tokens, strict=True)
    return [token if token == other else f"{token}{between}({other})" for token, other in pairs]


def _units(view: View, count: int) -> list[RenderableType]:
    return [part for units in view.units for part in _largest_units(view, units, count)]


def _largest_units(view: View, units: UnitTable, count: int) -> list[RenderableType]:
    """Return the units of one kind with the largest parts."""
    # A cell of a single unit is that unit.
    if all(len(each.ids) == 1 for each in units.parts):
        return []
    entries = largest_entries(dict(enumerate(each.columns[0] for each in units.parts)), count)
    largest = [(units.parts[number], token, place) for number, token, place, part in entries if part]
    if not largest:
        return []
    labels = token_labels(view)
    rows = tuple(
        (each.label, token, labels[token], each.ids[place], *(float(column[token, place]) for column in each.columns))
        for each, token, place in largest
    )
    table = Table("", ("", "token", "", units.name, *units.columns), rows, labels=4)
    return _titled(f"The largest {units.name}s", _table(table, count))


def _named(listed: NamedParts) -> list[RenderableType]:
    """Return the largest entries of a list, and the sum of the others."""
    rest = listed.entries[NAMED:]
    further = [(f"{len(rest)} others", sum(part for _, part in rest))] if rest else []
    rows = (*listed.entries[:NAMED], *further)
    return _titled(listed.title, _table(Table("", ("name", "part"), tuple(rows)), len(rows)))


def _account(view: View) -> list[RenderableType]:
    """Return the sum of the table, and of what is added to it, in one line; nothing where each row sums."""
    if view.completeness is None or not view.rows or not view.added or view.row_sums or view.graph:
        return []
    sums = [("all cells", float(view.parts.sum()))]
    sums += [(listed.title.lower(), sum(part for _, part in listed.entries)) for listed in view.added]
    return [Text("   ").join(Text.assemble((f"{name} ", "bold"), f"{part:+z.4f}") for name, part in sums)]
