"""Tables of the methods that find the tokens that matter, for a terminal."""

from collections.abc import Iterator, Mapping

from rich.console import RenderableType

from duat_jax.display.tables import NumberTable
from duat_jax.evaluation.deletion_plot import TITLES
from duat_jax.evaluation.deletion_study import DeletionRow, DeletionStudy
from duat_jax.models.targets.description import TargetDescription

TARGETS = {
    "next token": TargetDescription("log-probability of the model's next token", "LogProbability"),
    "hidden": TargetDescription("similarity to the text that follows", "Similarity"),
}
"""The number that is read from a model with each kind of head, of another token or another text for each text."""


def render(study: DeletionStudy, target: TargetDescription) -> Iterator[RenderableType]:
    """Yield a sentence on the texts, and the table of each way to take tokens away."""
    sentence = f"{target}: {study.value:z.3f} on {study.texts} texts of {study.tokens:z.1f} tokens on average"
    yield sentence.capitalize()
    for removal, rows in study.tables.items():
        yield ""
        yield _table(TITLES[removal].capitalize(), rows, study.costs)


def _table(title: str, rows: Mapping[str, DeletionRow], costs: Mapping[str, float]) -> NumberTable:
    """Return the methods beside each other."""
    table = NumberTable("", "deletion ↓", "insertion ↑", "first ahead by", "Spearman", "passes", title=title)
    table.columns[0].max_width = 20
    for i, (method, row) in enumerate(rows.items()):
        ahead = row.ahead.written(sign="+") if i else ""
        cells = row.deletion.written(), row.insertion.written(), ahead, f"{row.spearman.value:+z.2f}"
        table.add_row(method, *cells, f"{costs[method]:z.1f}")
    return table
