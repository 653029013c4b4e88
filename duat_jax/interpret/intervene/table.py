"""The table of an intervention, for a terminal and a notebook."""

from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.tables import DIFFERENCE, NumberTable, completeness_line, note_lines, number, predictions_line
from duat_jax.interpret.intervene.result import Intervention

NOTE = (
    "predicted: from the run as it is, attention, norms, gates and all other neurons held. part: each change's part of"
    " the measured difference, exact for this pair of runs. alone: the model run again with this change only."
)

PATCHED = (
    "contrast: minus the change's part of the difference from the reference (duat explain --reference), which predicts"
    " the change to the values on it."
)

SAID = 3
"""The number of the most probable outputs in a table."""

NOTHING = "The number doesn't move: nothing that was changed reaches it."


def _runs(found: Intervention) -> NumberTable:
    """Return the number and the most probable outputs with the changes and without them."""
    table = NumberTable()
    table.add_column("")
    table.add_column("the number", justify="right")
    if found.predictions:
        table.add_column("the model says")
    runs = (
        ("A: with the changes", found.after, found.changed_predictions),
        ("B: as it is", found.before, found.predictions),
    )
    for name, value, predictions in runs:
        table.add_row(name, f"{value:+z.4f}", *([predictions_line(predictions[:SAID])] if predictions else []))
    table.add_row(DIFFERENCE, number(found.difference))
    return table


def render(found: Intervention) -> RenderableType:
    """Return the table of an intervention: the target without and with the changes, and each change's effect.

    Args:
        found: what to show.
    """
    contrasted = any(effect.contrast is not None for effect in found.effects)
    table, extra = NumberTable(), [""] if contrasted else []
    table.add_column("change")
    for column in ("predicted", "part", *(["contrast"] if contrasted else []), "alone"):
        table.add_column(column, justify="right")
    for effect in found.effects:
        of_contrast = extra if effect.contrast is None else [number(effect.contrast)]
        frozen, secant = float(effect.frozen.sum()), float(effect.secant.sum())
        table.add_row(Text(effect.change), number(frozen), number(secant), *of_contrast, number(effect.alone))
    for name, part in found.discontinuities.items():
        table.add_row(Text(f"discontinuity: {name}"), "", number(part), *extra, "")
    together = (
        number(sum(float(effect.frozen.sum()) for effect in found.effects)),
        number(float(found.completeness.sum)),
    )
    table.add_row(Text("together", style="bold"), *together, *extra, number(found.difference))
    return Group(
        Text.assemble(("Explained:  ", "bold"), found.target.headline),
        _runs(found),
        "",
        table,
        "",
        completeness_line(found.completeness, "difference"),
        *note_lines(found.notes),
        Text(NOTE if found.reaches else NOTHING, style="dim"),
        *([Text(PATCHED, style="dim")] if contrasted else []),
    )
