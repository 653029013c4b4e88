"""The table of an attribution, for a terminal and a notebook."""

from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.attribution.result import Attribution
from duat_jax.display.tables import NumberTable, number, sides, token_label

UNITS = 12
"""The default number of units in a table."""


def render(attribution: Attribution, count: int = UNITS) -> RenderableType:
    """Return the table of an attribution: the number, the units with the largest scores, and how the scores sum.

    Args:
        attribution: what to show.
        count: how many units.
    """
    names = ", ".join(reference.name for reference in attribution.references)
    inputs = f", {sides('the input', names)}" if names else ""
    what = f"the {attribution.target}{inputs}"
    unit = attribution.unit
    layered, numbered = unit != "token", unit in ("neuron", "head")
    table = NumberTable(labels=2 + layered + numbered)
    columns = (*["layer"] * layered, "token", " ", *[unit] * numbered, "score")
    for column in columns:
        table.add_column(column, justify="left" if column.isspace() else "right")
    for scored in attribution.top(count):
        token = (str(scored.token_index), Text(token_label(attribution.tokens[scored.token_index])))
        table.add_row(*[str(scored.layer)] * layered, *token, *[str(scored.unit)] * numbered, number(scored.score))
    left_out = attribution.scores.size - min(count, attribution.scores.size)
    return Group(
        Text.assemble(("Attributed:  ", "bold"), what, f" ({attribution.difference:+z.4f})"),
        Text.assemble(("Method:      ", "bold"), f"{attribution.method}, {attribution.score}"),
        "",
        table,
        *([Text(f"and {left_out} others", style="dim")] if left_out else []),
        *_sums(attribution),
    )


def _sums(attribution: Attribution) -> list[RenderableType]:
    gap = attribution.gap
    if gap is None:
        return [
            Text("Neurons' and heads' scores need not sum to the difference: one can act through another.", style="dim")
        ]
    worst = float(gap.flat[abs(gap).argmax()])
    rows = "all tokens" if attribution.unit == "token" else "the tokens of every stream"
    return [Text(f"The scores of {rows} sum to the difference but for {worst:+.1e}.")]
