"""Models of every family read back from every form that they are stored in, for docs/reference/checkpoints.md."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from experiments.markdown import Fields, table

DTYPES = ("float32", "bfloat16", "float16", "float64")
Rows = dict[str, dict[str, str]]
"""The cells of a family, by the form of the model and the dtype that it is loaded in."""


def _summed_up(cells: dict[str, str]) -> str:
    """Return the cells of all families in words: the most frequent one with its number, the others with their families.

    Example:
        >>> _summed_up({"gpt2": "equal", "llama": "equal", "vit": "refused: no text"})
        '2 equal; refused: no text: `vit`'
    """
    (usual, number), *others = Counter(cells.values()).most_common()
    named = (f"{cell}: {', '.join(f'`{name}`' for name in cells if cells[name] == cell)}" for cell, _ in others)
    return "; ".join([f"{number} {usual}", *named])


def _rows(families: dict[str, Rows]) -> Iterator[list[str]]:
    """Yield a row for each form."""
    for form in dict.fromkeys(form for rows in families.values() for form in rows):
        of_form = {family: rows[form] for family, rows in families.items() if form in rows}
        columns = ({name: cells[dtype] for name, cells in of_form.items() if dtype in cells} for dtype in DTYPES)
        first, *others = map(_summed_up, columns)
        refused = "refused" in first
        yield [form, first, *("the same" if refused and other == first else other for other in others)]


def fields(kept: dict[str, Any]) -> Fields:
    """Return the table with a row for each form, the numbers of cells of each kind, and the versions of the tools."""
    families: dict[str, Rows] = kept["families"]
    results: dict[str, Rows] = kept["results"]
    cells = [cell for rows in families.values() for row in rows.values() for cell in row.values()]
    of_results = [cell for rows in results.values() for row in rows.values() for cell in row.values()]
    return {
        "table": "\n".join(table(["stored as", *DTYPES], _rows(families))),
        "results": "\n".join(table(["stored as", *DTYPES], _rows(results))),
        "result_cells": str(len(of_results)),
        "equal_results": str(of_results.count("equal")),
        "cells": str(len(cells)),
        "equal": str(sum(cell.split()[0] == "equal" and "rounding" not in cell for cell in cells)),
        "rounded": str(sum("rounding" in cell for cell in cells)),
        "refused": str(sum(cell.startswith("refused: ") for cell in cells)),
        **kept["versions"],
    }
