"""Tables of the change by adapters, for terminal and notebook."""

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.tables import (
    DIFFERENCE,
    NumberTable,
    completeness_line,
    note_lines,
    number,
    predictions_line,
)
from duat_jax.lora.parameters import Moved
from duat_jax.lora.result import LoraChange

SHOWN = 12
"""The number of adapters in a table."""

NOTE = (
    "moved: the base's terms under the dynamic parameters that the adapters moved. adapter: the adapted weights under"
    " the base's own. interaction: what both change together. part: of the difference, exact for this pair of runs."
    " alone: the model run again with this adapter only."
)


def render(change: LoraChange) -> RenderableType:
    """Return the table of a result: the metric without and with adapters, the three columns by term, and each adapter.

    Args:
        change: the result to show.
    """
    lines = [
        Text.assemble(("Explained:  ", "bold"), change.target.headline),
        Text.assemble(
            ("A: with adapters ", "bold"),
            f"{change.after:+z.4f}",
            ("   B: without ", "bold"),
            f"{change.before:+z.4f}",
            (f"   {DIFFERENCE} ", "bold"),
            number(change.difference),
        ),
    ]
    for name, predictions in zip(("without: ", "with them: "), change.predictions, strict=True):
        lines += [Text.assemble((name, "bold"), predictions_line(predictions))] if predictions else []
    return Group(
        *lines,
        "",
        _columns(change),
        "",
        completeness_line(change.completeness, "difference"),
        *note_lines(change.notes),
        "",
        _adapters(change),
        "",
        Text(NOTE, style="dim"),
    )


def _columns(change: LoraChange) -> RenderableType:
    table = NumberTable()
    for column in ("", "without", "moved", "adapter", "interaction", "change"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in change.rows.items():
        base, *changes = row.values()
        table.add_row(name, f"{base:+z.4f}", *map(number, changes), number(sum(changes)))
    totals = change.totals.values()
    base = sum(row["base"] for row in change.rows.values())
    table.add_row(Text("together", style="bold"), f"{base:+z.4f}", *map(number, totals), number(sum(totals)))
    moved = change.first_order - change.first_order_held
    first = number(moved), number(change.first_order_held), "", number(change.first_order)
    table.add_row(Text("of first order", style="bold"), "", *first)
    return table


def _adapters(change: LoraChange) -> RenderableType:
    table = NumberTable()
    table.add_column("adapter")
    for column in ("part", "first order", "alone"):
        table.add_column(column, justify="right")
    ordered = sorted(change.effects, key=lambda effect: -abs(effect.part))
    for effect in ordered[:SHOWN]:
        table.add_row(effect.name, number(effect.part), number(effect.first_order), number(effect.alone))
    if rest := ordered[SHOWN:]:
        sums = (sum(getattr(effect, name) for effect in rest) for name in ("part", "first_order", "alone"))
        table.add_row(f"{len(rest)} others", *map(number, sums))
    for name, part in change.discontinuities.items():
        table.add_row(Text(f"discontinuity: {name}"), number(part), "", "")
    alone = sum(effect.alone for effect in change.effects)
    together = number(float(change.by_adapter.sum)), number(change.first_order), number(alone)
    table.add_row(Text("together", style="bold"), *together)
    return table


def render_moved(moved: Moved) -> RenderableType:
    """Return the table of the relative changes of the closed form's parameters, layer by layer, in percent.

    Args:
        moved: the result of `moved_parameters`.
    """
    table = NumberTable()
    table.add_column("layer")
    for column in ("W'₁  input map", "b'₃  bias", "W'₂  inner maps", "b'₂  inner biases", "W'₃  outer maps"):
        table.add_column(column, justify="right")
    terms = list(moved.inner_maps)
    # A term of the head has no stream of a layer.
    rows = max(len(terms), len(moved.input_maps) - 1)
    streams = list(moved.input_maps)[1:]

    def percent(value: float | None) -> Text:
        if value is None:
            return Text("")
        return Text("0", style="dim") if value == 0 else Text(f"{100 * value:z.2f} %")

    for i in range(rows):
        stream, term = (keys[i] if i < len(keys) else None for keys in (streams, terms))
        numbers = (
            None if stream is None else moved.input_maps[stream].value,
            None if stream is None else moved.biases[stream],
            None if term is None else moved.inner_maps[term].value,
            None if term is None else moved.inner_biases[term],
            None if term is None else moved.outer_maps[term].value,
        )
        cells = (percent(None if value is None else float(np.asarray(value))) for value in numbers)
        table.add_row(str(term or stream), *cells)
    return Group(Text("How far every parameter of the closed form moved, of its size", style="bold"), table)
