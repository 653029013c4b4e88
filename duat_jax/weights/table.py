"""Tables of the difference between two models, for terminal and notebook."""

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.tables import DIFFERENCE, NumberTable, completeness_line, note_lines, number
from duat_jax.evaluation.statistics import students_mean
from duat_jax.forms.completeness import worst_of
from duat_jax.weights.result import ATTENTION, FIRST_ORDER, MLP, OTHER, ModelDiff, UnitPart

CANCELLING = 5
"""From how many times the difference on the sizes of all parts make a note."""
SHOWN = 0.5e-4
"""The smallest part of a neuron, head or row that a table of four digits shows."""
NOTE = (
    "part: of the difference, exact for these two models. set back: what is lost if the model gets its reference's"
    " weights there. put in: what is gained if the reference gets the model's. Both by running the model"
    " again; where weights act together, neither has to be the part."
)


def render(diff: ModelDiff, model: str = "the model", reference: str = "the reference") -> RenderableType:
    """Return the table of a result: both numbers, the parts by layer, and the largest parameters run again.

    Args:
        diff: the result to show.
        model: the name of the model.
        reference: that of its reference.
    """
    texts = len(diff.values)
    difference = number(diff.difference)
    if texts > 1:
        low, high = students_mean(diff.values[:, 1] - diff.values[:, 0])[1:]
        difference = Text.assemble(difference, f" [{low:+z.4f}, {high:+z.4f}], the mean of {texts} texts")
    lines = [
        Text.assemble(("Explained:  ", "bold"), diff.target.headline),
        Text.assemble(
            (f"A: {model} ", "bold"),
            f"{diff.value:+z.4f}",
            (f"   B: {reference} ", "bold"),
            f"{diff.reference_value:+z.4f}",
            (f"   {DIFFERENCE} ", "bold"),
            difference,
        ),
    ]
    again = ["", _again(diff), "", Text(NOTE, style="dim")] if diff.again else []
    shown = [unit for unit in diff.units if abs(unit.part) >= SHOWN]
    units = ["", _units(shown)] if shown else []
    return Group(*lines, "", _layers(diff), "", *_completeness(diff), *note_lines(diff.notes), *units, *again)


def _layers(diff: ModelDiff) -> RenderableType:
    table = NumberTable()
    table.add_column("weights")
    for column in ("attention", "MLP", "norms and other", "together", "of first order"):
        table.add_column(column, justify="right")
    rows = {name: {column: float(np.mean(part)) for column, part in row.items()} for name, row in diff.layers.items()}
    for name, row in rows.items():
        parts = [row[column] for column in (ATTENTION, MLP, OTHER)]
        cells = [number(part) if part else Text("") for part in parts]
        table.add_row(name, *cells, number(sum(parts)), number(row[FIRST_ORDER]))
    for name, part in diff.discontinuities.items():
        table.add_row(Text(f"discontinuity: {name}"), "", "", number(part), number(part), "")
    totals = [sum(row[column] for row in rows.values()) for column in (ATTENTION, MLP, OTHER, FIRST_ORDER)]
    totals[2] += sum(diff.discontinuities.values())
    table.add_row(Text("together", style="bold"), *map(number, totals[:3]), number(sum(totals[:3])), number(totals[3]))
    return table


def _completeness(diff: ModelDiff) -> list[RenderableType]:
    """Return the line of completeness, of several texts that of the worst one, and how much parts cancel."""
    worst = worst_of(diff.completeness)
    lines: list[RenderableType] = [completeness_line(worst, "difference")]
    if len(diff.completeness) > 1:
        held = sum(each.verdict == "holds" for each in diff.completeness)
        lines = [
            Text(f"on {held} of {len(diff.completeness)} texts the parts sum to the difference; the worst one:"),
            *lines,
        ]
    sizes = f"The sizes of all parameters' parts are {diff.cancellation:.3g} times the difference"
    if diff.cancellation >= CANCELLING:
        sizes += (
            ": parts cancel. So a large part needn't be a large effect, and on other texts parts may have other signs"
        )
    lines.append(Text(f"{sizes}."))
    return lines


def _units(shown: list[UnitPart]) -> RenderableType:
    table = NumberTable(title="Neurons, heads and rows")
    table.add_column("weights")
    table.add_column("unit")
    table.add_column("part", justify="right")
    for unit in shown:
        table.add_row(unit.weights, Text(unit.unit), number(unit.part))
    return table


def _again(diff: ModelDiff) -> RenderableType:
    table = NumberTable(title="The largest parts, and the model run again")
    table.add_column("parameter")
    several = ("its 95 % interval",) if diff.intervals else ()
    for column in ("part", *several, "set back", "put in", "of first order"):
        table.add_column(column, justify="right")
    *rows, together = diff.again
    first_order = [float(diff.first_order[row.name].mean()) for row in rows]
    for row, first in zip([*rows, together], [*first_order, sum(first_order)], strict=True):
        ends = diff.intervals.get(row.name, ())
        interval = [" to ".join(f"{end:+z.4f}" for end in ends)] if several else []
        name = Text(row.name, style="bold" if row is together else "")
        table.add_row(name, number(row.part), *interval, *map(number, (row.set_back, row.put_in, first)))
    return table
