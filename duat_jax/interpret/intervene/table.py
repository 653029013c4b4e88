"""The table of an intervention, for a terminal and a notebook."""

from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.tables import NumberTable, completeness_line, note_lines, number
from duat_jax.interpret.intervene.result import Intervention

NOTE = (
    "frozen: predicted from the run as it is, attention, norms, gates and all other neurons held. secant: each change's"
    " part of the measured difference, exact for this pair of runs. alone: the model run again with this change only."
)

NOTHING = "The number doesn't move: nothing that was changed reaches it."


def render(found: Intervention) -> RenderableType:
    """Return the table of an intervention: the target without and with the changes, and each change's effect.

    Args:
        found: what to show.
    """
    table = NumberTable()
    table.add_column("change")
    for column in ("frozen", "secant", "alone"):
        table.add_column(column, justify="right")
    for effect in found.effects:
        parts = (float(effect.frozen.sum()), float(effect.secant.sum()), effect.alone)
        table.add_row(Text(effect.change), *map(number, parts))
    for name, part in found.discontinuities.items():
        table.add_row(Text(f"discontinuity: {name}"), "", number(part), "")
    frozen = sum(float(effect.frozen.sum()) for effect in found.effects)
    table.add_row(
        Text("together", style="bold"), number(frozen), number(float(found.completeness.sum)), number(found.difference)
    )
    return Group(
        Text.assemble(("Explained:  ", "bold"), found.target),
        Text.assemble(
            ("as it is ", "bold"),
            f"{found.before:+.4f}",
            ("   with the changes ", "bold"),
            f"{found.after:+.4f}",
            ("   difference ", "bold"),
            number(found.difference),
        ),
        "",
        table,
        "",
        completeness_line(found.completeness, "difference"),
        *note_lines(found.notes),
        Text(NOTE if found.difference else NOTHING, style="dim"),
    )
