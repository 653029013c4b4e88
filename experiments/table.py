"""Tables of a study, stated as rows, columns and cells of a frame of measurements."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.estimate import Estimate, Method, estimate
from experiments.markdown import table

Frames = Mapping[str, pd.DataFrame]
"""Measurements of a study by the name of their frame: a row for each unit and condition."""


class Cell(NamedTuple):
    """The content of a cell: what it shows of the rows of its group.

    Args:
        value: a column, whose mean over units is shown with its interval (text is shown as it is); or a function of
            the rows that returns an estimate, numbers of units, or text.
        digits: the number of digits after the decimal point.
        sign: `"+"` for a difference.
        scale: what numbers are multiplied by, such as 100 for per cent.
    """

    value: str | Callable[[pd.DataFrame], Any]
    digits: int = 3
    sign: str = ""
    scale: float = 1.0


class Table(NamedTuple):
    """A table: the rows of a frame, grouped.

    Args:
        frame: the name of the frame.
        rows: columns of the frame whose values tell the table's rows apart.
        cells: what each column shows, by its heading; with `columns` every value of it has one such column. A name
            alone is a column of the frame whose mean is shown.
        columns: the column of the frame whose values tell the table's columns apart, if any.
        unit: the column that names units: rows of one unit are averaged first; without it each row is a unit.
        prepare: makes the rows that are shown, from the frame.
        note: one sentence below the table.
    """

    frame: str
    rows: tuple[str, ...]
    cells: str | Mapping[str, Cell]
    columns: str | None = None
    unit: str | None = None
    prepare: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame
    note: str = ""


def rows_of(frame: pd.DataFrame, **columns: Any) -> pd.DataFrame:
    """Return the rows of a frame whose columns have these values.

    Example:
        >>> rows_of(pd.DataFrame({"method": ["a", "a", "b"], "seed": [0, 1, 0], "loss": [1, 2, 3]}), method="a", seed=1)
          method  seed  loss
        1      a     1     2
    """
    return frame[np.logical_and.reduce([frame[name] == value for name, value in columns.items()])]


def of_units(rows: pd.DataFrame, column: str, unit: str | None) -> pd.Series:
    """Return a column's number of every unit: the mean of the unit's rows."""
    return rows[column] if unit is None else rows.groupby(unit, sort=False)[column].mean()


def _value(cell: Cell, rows: pd.DataFrame, unit: str | None) -> Estimate | str:
    if callable(cell.value):
        value = cell.value(rows)
    elif pd.api.types.is_numeric_dtype(rows[cell.value]) or rows[cell.value].dtype == bool:
        value = of_units(rows.dropna(subset=[cell.value]), cell.value, unit)
    else:
        value = str(rows[cell.value].iloc[0])
    if isinstance(value, str | Estimate):
        return value
    return estimate(np.asarray(value)) if len(value) else ""


def _columns(shown: pd.DataFrame, of: Table) -> Iterator[tuple[str, Any, Cell]]:
    """Yield every column's heading, the value of `columns` that it is for, and its cell."""
    heading = "" if of.columns else of.cells
    cells = {str(heading): Cell(of.cells)} if isinstance(of.cells, str) else of.cells
    for value in [None] if of.columns is None else shown[of.columns].drop_duplicates():
        for heading, cell in cells.items():
            yield ", ".join(str(part) for part in (value, heading) if part not in (None, "")), value, cell


def render(of: Table, frames: Frames) -> list[str]:
    r"""Return the lines of a table in Markdown, with the method of its intervals below it.

    Example:
        >>> losses = pd.DataFrame({"method": ["a", "a", "b", "b"], "seed": [0, 1, 0, 1], "loss": [1.0, 2.0, 3.0, 3.0]})
        >>> print("\n".join(render(Table("losses", ("method",), {"loss": Cell("loss", 1)}), {"losses": losses})))
        | method | loss |
        |---|---|
        | a | 1.5 [-4.9, 7.9] |
        | b | 3.0 |
        <BLANKLINE>
        *Brackets are 95 % intervals by Student's t, n = 2.*
    """
    shown = of.prepare(frames[of.frame])
    columns = list(_columns(shown, of))
    methods: dict[Method, set[int]] = {}
    lines = []
    for names, rows in shown.groupby(list(of.rows), sort=False, dropna=False):
        line = [str(name) for name in names]
        for _, value, cell in columns:
            group = rows if value is None else rows[rows[of.columns] == value]
            number = _value(cell, group, of.unit) if len(group) else ""
            if isinstance(number, Estimate):
                methods.setdefault(number.method, set()).add(number.n)
                number = number.scaled(cell.scale).written(cell.digits, cell.sign)
            line.append(number)
        lines.append(line)
    return [*table([*of.rows, *(heading for heading, *_ in columns)], lines), *_notes(of, methods)]


def _notes(of: Table, methods: Mapping[Method, set[int]]) -> list[str]:
    """Return what stands below a table: the methods of its intervals with the numbers of units, and its note."""
    used = [
        f"{method}, n = {min(sizes)}" + (f" to {max(sizes)}" if len(sizes) > 1 else "")
        for method, sizes in methods.items()
        if method is not Method.NONE
    ]
    intervals = f"Brackets are 95 % intervals by {' and '.join(used)}." if used else ""
    text = " ".join(part for part in (intervals, of.note) if part)
    return ["", f"*{text}*"] if text else []
