"""The table of a number's change over the examples of every step, for terminal and notebook."""

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.tables import NumberTable, completeness_line, number
from duat_jax.training.over_examples.result import KINDS, Influence

CAVEAT = (
    "These parts account for the training as it was. What the number would have been without an example is another"
    " question, which they forecast in order at times, and not in size."
)
LARGEST = 5
"""The number of rows of batches that are shown on either side."""


def render_kinds(found: Influence) -> RenderableType:
    """Return the number at the ends, and the table of its change by kind of part.

    Args:
        found: the result to show.
    """
    first, last = found.ledger.values[[0, -1]]
    line = f"from {first:z.4f} to {last:z.4f} over {len(found.losses)} steps: "
    kinds = NumberTable()
    kinds.add_column("by")
    kinds.add_column("part", justify="right")
    for kind, part in found.parts.items():
        if part or kind == "examples":
            kinds.add_row(KINDS[kind], number(part))
    return Group(
        Text.assemble(("number ", "bold"), line, number(found.difference)),
        "",
        kinds,
        "",
        completeness_line(found.completeness, "difference"),
        Text(CAVEAT, style="dim"),
    )


def render(found: Influence) -> RenderableType:
    """Return the table: the number at the ends, its change by kind of part, and the rows with the largest parts.

    Args:
        found: the result to show.
    """
    rows = found.rows
    raised, lowered = rows[rows > 0].sum(), rows[rows < 0].sum()
    said = f"Rows of batches raised the number by {raised:z.4f} and lowered it by {-lowered:z.4f}. The largest:"
    largest = NumberTable()
    for column in ("step", "row"):
        largest.add_column(column, justify="right")
    largest.add_column("part", justify="right")
    order = np.argsort(rows, axis=None)
    places = list(dict.fromkeys([*order[:LARGEST], *order[-LARGEST:]]))
    for place in places:
        step, row = np.unravel_index(place, rows.shape)
        largest.add_row(str(step), str(row), number(float(rows[step, row])))
    if len(places) < rows.size:
        largest.add_row("all", "others", number(float(rows.sum() - rows.flat[places].sum())))
    return Group(render_kinds(found), "", Text(said), largest)
