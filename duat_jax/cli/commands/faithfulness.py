"""The command `duat faithfulness`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.groups import Fields
from duat_jax.cli.options import Source
from duat_jax.cli.output import Answer, StudyFiles
from duat_jax.cli.progress import progress_bar

if TYPE_CHECKING:
    from rich.console import RenderableType

    from duat_jax.evaluation.deletion_study import DeletionRow

TARGETS = {
    "next token": ("log-probability of the model's next token", "LogProbability"),
    "hidden": ("similarity to the text that follows", "Similarity"),
}
"""The number that is read from a model with each kind of head, of another token or another text for each text: its
headline and its kind."""


def _table(title: str, rows: "Mapping[str, DeletionRow]", costs: Mapping[str, float]) -> "RenderableType":
    from duat_jax.display.tables import NumberTable

    table = NumberTable(title=title)
    table.add_column("", max_width=20)
    for column in ("deletion ↓", "insertion ↑", "first ahead by", "Spearman", "passes"):
        table.add_column(column, justify="right")
    for i, (method, row) in enumerate(rows.items()):
        ahead = row.ahead.written(sign="+") if i else ""
        cells = row.deletion.written(), row.insertion.written(), ahead, f"{row.spearman.value:+z.2f}"
        table.add_row(method, *cells, f"{costs[method]:z.1f}")
    return table


@command(
    "duat faithfulness --texts 20",
    "duat faithfulness --model DIR --text sentences.txt --work faithfulness.work --json faithfulness.json",
)
def faithfulness(
    *,
    source: Annotated[
        Source,
        Fields(
            *("model", "no_special_tokens", "dtype"),
            model="A language model or sentence encoder: directory, GGUF file or hub:OWNER/NAME; the embedded model if"
            " absent.",
        ),
    ],
    text: Annotated[
        Path | None, typer.Option(help="A file with one text per line. If absent, sentences of Python's manual.")
    ] = None,
    texts: Annotated[int, typer.Option(min=2, help="Number of texts to draw.")] = 20,
    tokens: Annotated[int, typer.Option(min=5, help="Largest number of tokens of a language model's text.")] = 24,
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method; later ones are compared with the first. All if absent, secant first."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for drawing texts and for the random ranking.")] = 0,
    files: StudyFiles,
) -> Answer:
    """Measure which methods find the tokens that matter: remove tokens in their order, and run the model again."""
    config = source.open()
    from duat_jax.evaluation.deletion_plot import TITLES, draw
    from duat_jax.evaluation.deletion_study import check, manual, study
    from duat_jax.evaluation.running_text import read_texts
    from duat_jax.models.targets.description import TargetDescription

    lines = manual() if text is None else [line for line in read_texts([text])[0].splitlines() if line.strip()]
    tokenizer = source.tokenizer
    check(config, tokenizer, lines, method or (), count=texts, longest=tokens)
    model = source.load()
    with progress_bar("Texts", "texts") as report:
        result = study(
            *(model, tokenizer, lines, method or ()),
            count=texts,
            longest=tokens,
            seed=seed,
            work=files.work,
            progress=report,
        )
    target = TargetDescription(*TARGETS[config.head.kind])
    summary = f"{target}: {result.value:z.3f} on {result.texts} texts of {result.tokens:z.1f} tokens on average"
    tables = [
        part
        for removal, rows in result.tables.items()
        for part in ("", _table(TITLES[removal].capitalize(), rows, result.costs))
    ]
    return Answer(
        record=result.as_dict(model=source.name, target=target, seed=seed),
        parts=[summary.capitalize(), *tables],
        figure=partial(draw, result.tables, result.value, target.headline),
    )
