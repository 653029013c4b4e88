"""The command `duat faithfulness`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.options import Dtype, Json, Kept, NoSpecialTokens, Plot, Work
from duat_jax.cli.output import check_outputs, deliver, one_line_errors, to_json
from duat_jax.cli.progress import loading_bar, progress_bar

if TYPE_CHECKING:
    from rich.console import RenderableType

    from duat_jax.evaluation.deletion_study import Row

TARGETS = {
    "next token": ("log-probability of the model's next token", "LogProbability"),
    "hidden": ("similarity to the text that follows", "Similarity"),
}
"""The number that is read from a model with each kind of head, of another token or another text for each text: its
headline and its kind."""


def _table(title: str, rows: "Mapping[str, Row]", costs: Mapping[str, float]) -> "RenderableType":
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


def faithfulness(
    model: Annotated[
        Path | None,
        typer.Option(
            help="A language model or sentence encoder: directory, GGUF file or hub:OWNER/NAME; the embedded model if"
            " absent."
        ),
    ] = None,
    no_special_tokens: NoSpecialTokens = False,
    dtype: Kept = Dtype.float32,
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
    work: Work = None,
    plot: Plot = None,
    json_file: Json = None,
) -> None:
    """Measure which methods find the tokens that matter: remove tokens in their order, and run the model again."""
    with one_line_errors(work, resumable=True):
        check_outputs(plot, json_file, work)
        start_jax(float64=dtype is Dtype.float64)
        import duat_jax as duat
        from duat_jax.evaluation.deletion_plot import TITLES, draw
        from duat_jax.evaluation.deletion_study import check, manual, study
        from duat_jax.evaluation.running_text import read_texts
        from duat_jax.models.targets.description import TargetDescription

        lines = manual() if text is None else [line for line in read_texts([text])[0].splitlines() if line.strip()]
        config = duat.load_config(model)
        tokenizer = duat.load_tokenizer(model, add_special_tokens=not no_special_tokens)
        check(config, tokenizer, lines, method or (), count=texts, longest=tokens)
        with loading_bar() as progress:
            loaded = duat.load(model, dtype=dtype.value, progress=progress)
        with progress_bar("Texts", "texts") as report:
            result = study(
                *(loaded, tokenizer, lines, method or ()),
                count=texts,
                longest=tokens,
                seed=seed,
                work=work,
                progress=report,
            )
        name = "embedded" if model is None else str(model).encode(errors="replace").decode()
        target = TargetDescription(*TARGETS[loaded.config.head.kind])
        content = to_json(result.as_dict(model=name, target=target, seed=seed))
        summary = f"{target}: {result.value:z.3f} on {result.texts} texts of {result.tokens:z.1f} tokens on average"
        tables = [
            part
            for removal, rows in result.tables.items()
            for part in ("", _table(TITLES[removal].capitalize(), rows, result.costs))
        ]
        figure = partial(draw, result.tables, result.value, target.headline)
        deliver(content, summary.capitalize(), *tables, figure=figure, plot=plot, json_file=json_file)
