"""The in-context ledger as a table."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.analysis.context_form import Moved
from duat_jax.explanation.table import completeness_line, new_table, number

if TYPE_CHECKING:
    from duat_jax.analysis.context_ledger import Ledger

NOTE = (
    "Every column up to the sum is a part of one difference, and so is 'mask alone', where nothing is held. Run again:"
    " how much less is added where that layer alone, or it and all later ones, don't see the hidden part."
)


def _numbers(parts: Iterable[Any]) -> list[Text]:
    return [number(float(part)) for part in parts]


def _layers(ledger: "Ledger") -> RenderableType:
    from duat_jax.analysis.context_ledger import COLUMNS

    table, parts, beside = new_table(), ledger.layers, {"mask alone": ledger.mask}
    if ledger.hidden_at is not None and ledger.hidden_from is not None:
        beside |= {"run again: alone": ledger.hidden_at, "and later": ledger.hidden_from}
    for column in ("", *COLUMNS, "sum", *beside):
        table.add_column(column, justify="right", max_width=13 if column else None)
    for i, row in enumerate(parts[:-1]):
        table.add_row(f"layer {i}", *_numbers((*row, row.sum(), *(column[i] for column in beside.values()))))
    for name, row in (("read-out", parts[-1]), ("all", parts.sum(0))):
        table.add_row(name, *_numbers((*row, row.sum())))
    return table


def _form(form: Moved) -> RenderableType:
    table = new_table()
    columns = ("W'3, other tokens", "W'3, hidden part", "W'2, other tokens", "W'2, hidden part", "c_j", "both")
    for column in ("", *columns, "sum"):
        table.add_column(column, justify="right", max_width=13 if column else None)
    parts = np.concatenate([form.outer, form.inner, form.inner_bias[:, None], form.both[:, None]], 1)
    for i, row in enumerate(parts):
        table.add_row(f"term {i + 1}", *_numbers((*row, row.sum())))
    table.add_row("all terms", *_numbers((*parts.sum(0), parts.sum())), style="bold")
    for name, part in (
        ("W'1, other tokens", form.path[0]),
        ("W'1, hidden part", form.path[1]),
        ("bias q", form.bias),
    ):
        table.add_row(name, *[""] * len(columns), number(float(part)))
    return table


def render(ledger: "Ledger") -> RenderableType:
    """Return the whole account: by layer, and in the closed form's parameters.

    Args:
        ledger: what to show.
    """
    seen, hidden = ledger.values
    jumps = [f"{name}: {part:+.4f}" for name, part in ledger.jumps.items() if part]
    return Group(
        Text(f"log-probability {seen:+.4f} with the hidden part in view, {hidden:+.4f} without", style="bold"),
        "",
        Text("What moved, layer by layer", style="bold"),
        _layers(ledger),
        *jumps,
        completeness_line(ledger.completeness, "difference"),
        "",
        Text("The same in the closed form's parameters", style="bold"),
        _form(ledger.form),
        completeness_line(ledger.form.completeness, "difference"),
        Text(NOTE, style="dim"),
    )
