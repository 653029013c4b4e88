"""Tables of the in-context decomposition."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.tables import DIFFERENCE, NumberTable, completeness_line, note_lines, number
from duat_jax.in_context.parameters import Moved
from duat_jax.in_context.result import Ledger

NOTE = (
    "Every column up to the sum is a part of one difference; so is 'what is read', where nothing is held. Run again:"
    " how much less is added where that layer alone, or it and all later ones, read the part as in the second run."
)
MASKED = "No input moves: the text is the same in both runs, and its hidden part is masked."


def _numbers(parts: Iterable[Any]) -> list[Text]:
    return [number(float(part)) for part in parts]


def _layers(ledger: Ledger) -> RenderableType:
    from duat_jax.in_context.result import COLUMNS

    table, layers, extra = NumberTable(), ledger.layers, {"what is read": ledger.reads}
    # A hidden part's own parameters are the same in both runs.
    first = int(ledger.inputs is None)
    if ledger.again_at is not None and ledger.again_from is not None:
        extra |= {"run again: alone": ledger.again_at, "and later": ledger.again_from}
    for column in ("", *COLUMNS[first:], "sum", *extra):
        table.add_column(column, justify="right" if column else "left")
    for i, row in enumerate(layers[:-1, first:]):
        table.add_row(f"layer {i}", *_numbers((*row, row.sum(), *(column[i] for column in extra.values()))))
    for name, row in (("read-out", layers[-1, first:]), ("all", layers[:, first:].sum(0))):
        table.add_row(name, *_numbers((*row, row.sum())))
    return table


def _form(form: Moved, *, masked: bool) -> RenderableType:
    table = NumberTable()
    columns = ("W'3, after the part", "W'3, the part", "W'2, after the part", "W'2, the part", "c_j", "inputs")
    kept = len(columns) - masked
    for column in ("", *columns[:kept], "sum"):
        table.add_column(column, justify="right" if column else "left")
    bias, inputs = form.inner_bias[:, None], form.inner_inputs[:, None]
    parts = np.concatenate([form.outer, form.inner, bias, inputs], 1)[:, :kept]
    for i, row in enumerate(parts):
        table.add_row(f"term {i + 1}", *_numbers((*row, row.sum())))
    table.add_row("all terms", *_numbers((*parts.sum(0), parts.sum())), style="bold")
    rest = {"W'1, after the part": form.path[0], "W'1, the part": form.path[1], "bias q": form.bias}
    for name, part in (rest if masked else rest | {"inputs": form.inputs}).items():
        table.add_row(name, *[""] * kept, number(float(part)))
    return table


def render(ledger: Ledger) -> RenderableType:
    """Return the tables of a result: by layer, and in the closed form's parameters.

    Args:
        ledger: the result to show.
    """
    first, second = ledger.values
    masked = ledger.inputs is None
    runs = ("with the part in view", "without") if masked else ("with the part", "with the reference in its place")
    inputs = MASKED if ledger.inputs is None else f"moved inputs: {float(ledger.inputs.sum()):+z.4f}"
    discontinuities = [f"{name}: {part:+z.4f}" for name, part in ledger.discontinuities.items() if part]
    return Group(
        Text(
            f"log-probability: A {first:+z.4f} {runs[0]}, B {second:+z.4f} {runs[1]}, {DIFFERENCE}"
            f" {first - second:+z.4f}",
            style="bold",
        ),
        inputs,
        "",
        Text("Moved parameters, layer by layer", style="bold"),
        _layers(ledger),
        *discontinuities,
        completeness_line(ledger.completeness, "difference"),
        *note_lines(ledger.notes),
        "",
        Text("The same in the closed form's parameters", style="bold"),
        _form(ledger.form, masked=masked),
        completeness_line(ledger.form.completeness, "difference"),
        Text(NOTE, style="dim"),
    )
