"""What adapters change, as tables that a person can read, in a terminal and in a notebook."""

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.tables import completeness_line, new_table, note_lines, number, spoken
from duat_jax.lora.parameters import Moved
from duat_jax.lora.result import LoraChange

SHOWN = 12
"""How many adapters a table shows."""

NOTE = (
    "moved: the base's terms under the dynamic parameters that the adapters moved. adapter: the adapted weights under"
    " the base's own. interaction: what both change together. part: of the difference, exact for this pair of runs."
    " alone: the model run again with this adapter only."
)


def render(found: LoraChange) -> RenderableType:
    """Return the whole table: the number without and with adapters, the three columns by term, and each adapter.

    Args:
        found: what to show.
    """
    lines = [
        Text.assemble(("Explained:  ", "bold"), found.target),
        Text.assemble(
            ("without adapters ", "bold"),
            f"{found.before:+.4f}",
            ("   with them ", "bold"),
            f"{found.after:+.4f}",
            ("   difference ", "bold"),
            number(found.difference),
        ),
    ]
    for name, said in zip(("without: ", "with them: "), found.predictions, strict=True):
        lines += [Text.assemble((name, "bold"), spoken(said))] if said else []
    return Group(
        *lines,
        "",
        _columns(found),
        "",
        completeness_line(found.completeness, "difference"),
        *note_lines(found.notes),
        "",
        _adapters(found),
        "",
        Text(NOTE, style="dim"),
    )


def _columns(found: LoraChange) -> RenderableType:
    table = new_table()
    for column in ("", "without", "moved", "adapter", "interaction", "change"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in found.rows.items():
        base, *changes = row.values()
        table.add_row(name, f"{base:+.4f}", *map(number, changes), number(sum(changes)))
    totals = found.totals.values()
    base = sum(row["base"] for row in found.rows.values())
    table.add_row(Text("together", style="bold"), f"{base:+.4f}", *map(number, totals), number(sum(totals)))
    moved = found.first_order - found.first_order_held
    first = number(moved), number(found.first_order_held), "", number(found.first_order)
    table.add_row(Text("of first order", style="bold"), "", *first)
    return table


def _adapters(found: LoraChange) -> RenderableType:
    table = new_table()
    table.add_column("adapter")
    for column in ("part", "first order", "alone"):
        table.add_column(column, justify="right")
    ordered = sorted(found.effects, key=lambda effect: -abs(effect.part))
    for effect in ordered[:SHOWN]:
        table.add_row(effect.name, number(effect.part), number(effect.first_order), number(effect.alone))
    if others := ordered[SHOWN:]:
        sums = (sum(getattr(effect, name) for effect in others) for name in ("part", "first_order", "alone"))
        table.add_row(f"{len(others)} others", *map(number, sums))
    for name, part in found.jumps.items():
        table.add_row(Text(f"jumped: {name}"), number(part), "", "")
    alone = sum(effect.alone for effect in found.effects)
    together = number(float(found.by_adapter.sum)), number(found.first_order), number(alone)
    table.add_row(Text("together", style="bold"), *together)
    return table


def render_moved(moved: Moved) -> RenderableType:
    """Return how far every parameter of the closed form moved, layer by layer, in percent of its size.

    Args:
        moved: what `moved_parameters` returns.
    """
    table = new_table()
    table.add_column("layer")
    for column in ("W'₁  input map", "b'₃  bias", "W'₂  inner maps", "b'₂  inner biases", "W'₃  outer maps"):
        table.add_column(column, justify="right")
    terms = list(moved.inner_maps)
    # A term before the read-out belongs to no layer's stream.
    rows = max(len(terms), len(moved.input_maps) - 1)
    streams = list(moved.input_maps)[1:]

    def percent(value: float | None) -> Text:
        if value is None:
            return Text("")
        return Text("0", style="dim") if value == 0 else Text(f"{100 * value:.2f} %")

    for i in range(rows):
        stream, term = (keys[i] if i < len(keys) else None for keys in (streams, terms))
        numbers = (
            None if stream is None else moved.input_maps[stream].value,
            None if stream is None else moved.biases[stream],
            None if term is None else moved.inner_maps[term].value,
            None if term is None else moved.inner_biases[term],
            None if term is None else moved.outer_maps[term].value,
        )
        shown = (percent(None if one is None else float(np.asarray(one))) for one in numbers)
        table.add_row(str(term or stream), *shown)
    return Group(Text("How far every parameter of the closed form moved, of its size", style="bold"), table)
