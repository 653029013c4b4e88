"""The data of a page: plain, made from the view of a result and read by `page.js`."""

from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from duat_jax.display.examples import Examples
from duat_jax.display.page.seen import seen_data
from duat_jax.display.view import Cell, Table, UnitTable, View, numbers
from duat_jax.models.vocabulary.token import written_label

FORMAT = 4
"""The version of the data."""

TOP = 8
"""The number of the largest neurons or heads that a page has of a cell; the others stand in it as their sum."""


def page_data(view: View, examples: Examples | None = None) -> dict[str, Any]:
    """Return what a page shows of a result."""
    kinds = [{name: getattr(units, name) for name in ("name", "columns", "note", "others")} for units in view.units]
    rows = [
        {
            "name": row.name,
            "parts": numbers(row.parts),
            "units": [_units_of_row(units, i) for units in view.units],
            "layer": row.layer,
        }
        for i, row in enumerate(view.rows)
    ]
    completeness = view.completeness
    return {
        "kind": view.kind,
        "target": view.target,
        "headline": view.headline,
        "position": view.position,
        "output": view.output,
        "exact": view.exact,
        "value_name": view.value_name,
        "value": view.value,
        "completeness": None if completeness is None else completeness.as_dict(),
        "said": [
            {
                "name": run.name,
                "value": run.value,
                "predictions": [(written_label(token), float(share)) for token, share in run.predictions],
            }
            for run in view.runs
        ],
        "tokens": view.tokens,
        "others": view.others,
        "line_ends": view.line_ends,
        "seen": seen_data(view),
        "colourings": [each._replace(parts=numbers(each.parts))._asdict() for each in view.all_colourings],
        "rows": rows,
        "moves": msgspec.to_builtins(view.moves, enc_hook=numbers),
        "row_sums": view.row_sums,
        "beside": view.later,
        "kinds": kinds,
        "added": [each._asdict() for each in view.added],
        "notes": view.notes,
        "heading": view.heading,
        "tables": [] if view.graph is not None else [_table(each) for each in view.tables],
        "graph": None if view.graph is None else msgspec.to_builtins(view.graph, enc_hook=numbers),
        "examples": {} if examples is None else _examples(kinds, rows, examples),
    }


def _table(table: Table) -> dict[str, Any]:
    """Return a table: its numbers are signed parts, and what else stands in it is text."""

    def cells(row: tuple[Cell, ...]) -> list[float | str | None]:
        return [str(cell) if isinstance(cell, int) else cell for cell in row]

    total = None if table.total is None else cells(table.total)
    return {
        "title": table.title,
        "columns": table.columns,
        "rows": list(map(cells, table.rows)),
        "total": total,
        "note": table.note,
    }


def _units_of_row(units: UnitTable, row: int) -> dict[str, Any] | None:
    """Return the largest units of a row at every token, those of several choices or runs one after the other."""
    parts = [each for each in units.parts if each.row == row]
    if not parts:
        return None
    columns = [np.concatenate(columns, -1) for columns in zip(*(each.columns for each in parts), strict=True)]
    ids = list(parts[0].ids) if len(parts) == 1 else range(columns[0].shape[-1])
    return largest_units(*columns, ids=ids)


def largest_units(*columns: Float[np.ndarray, "tokens units"], ids: Any = None) -> dict[str, Any]:
    """Return at every token the units with the largest parts, and the sum of the others."""
    parts = columns[0]
    most = min(TOP, parts.shape[-1])
    chosen = np.argpartition(-np.abs(parts), most - 1, axis=-1)[:, :most]
    by_size = np.argsort(-np.abs(np.take_along_axis(parts, chosen, -1)), axis=-1, kind="stable")
    order = np.take_along_axis(chosen, by_size, -1)
    top = [numbers(np.take_along_axis(column, order, -1)) for column in columns]
    rest = parts.copy()
    np.put_along_axis(rest, order, 0, -1)
    ids = range(parts.shape[-1]) if ids is None else ids
    return {
        "top": [
            [[ids[place], *entry] for place, *entry in zip(places, *entries, strict=True)]
            for places, *entries in zip(order.tolist(), *top, strict=True)
        ],
        "rest": numbers(rest.sum(-1)),
    }


def _examples(kinds: list[dict[str, Any]], rows: list[dict[str, Any]], examples: Examples) -> dict[str, Any]:
    """Return the texts in which the neurons of a page are strongest, by layer and index, such as `"3:17"`."""
    neurons = {
        (row["layer"], unit)
        for row in rows
        for kind, units in zip(kinds, row["units"], strict=True)
        if kind["name"] == "neuron" and units is not None and row["layer"] is not None
        for top in units["top"]
        for unit, *_ in top
    }
    texts = {f"{layer}:{unit}": examples.find_texts(layer, unit) for layer, unit in sorted(neurons)}
    return {name: msgspec.to_builtins(each) for name, each in texts.items() if each}
