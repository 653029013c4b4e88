"""The table of a number's change over weights and segments, for terminal and notebook."""

import itertools

from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.tables import NumberTable, completeness_line, number
from duat_jax.forms.completeness import HOLDS, worst_of
from duat_jax.training.over_weights.result import WeightLedger

SEGMENTS = 6
"""The largest number of columns; of more segments neighbours are summed."""


def render(ledger: WeightLedger) -> RenderableType:
    """Return the table: the number at the ends, the parts of groups of weights by segments, and the worst verdict.

    Args:
        ledger: the result to show.
    """
    count = len(ledger.values) - 1
    line = f"from {ledger.values[0]:z.4f} to {ledger.values[-1]:z.4f} over {count} segments: "
    lines: list[RenderableType] = [Text.assemble(("number ", "bold"), line, number(ledger.difference))]
    if not count:
        return Group(*lines)
    columns = min(SEGMENTS, count)
    bounds = [round(count * k / columns) for k in range(columns + 1)]
    spans = list(itertools.pairwise(bounds))
    table = NumberTable()
    table.add_column("weights")
    for first, last in spans:
        label = f"segment {first}" if last == first + 1 else f"segments {first}–{last - 1}"
        table.add_column(label, justify="right")
    table.add_column("together", justify="right")
    for name, sums in ledger.groups.items():
        parts = [float(sums[first:last].sum()) for first, last in spans]
        table.add_row(name, *map(number, parts), number(sum(parts)))
    if ledger.discontinuities.any():
        jumps = [float(ledger.discontinuities[first:last].sum()) for first, last in spans]
        table.add_row("discontinuities", *map(number, jumps), number(sum(jumps)))
    ends = [float(ledger.values[last] - ledger.values[first]) for first, last in spans]
    table.add_row(Text("together", style="bold"), *map(number, ends), number(ledger.difference))
    judged = [ledger.between(first, last) for first, last in spans]
    lines = [*lines, "", table, "", completeness_line(ledger.overall, "difference")]
    held = sum(each.verdict == HOLDS for each in judged)
    if held < columns:
        said = f"In {held} of {columns} columns the parts sum to the difference; the worst one:"
        lines += [Text(said), completeness_line(worst_of(judged), "difference")]
    return Group(*lines)
