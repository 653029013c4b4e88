"""The command `duat survey`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.compiled import start_jax
from duat_jax.cli.groups import Fields
from duat_jax.cli.options import ModelWithoutChat, Number
from duat_jax.cli.output import Answer
from duat_jax.cli.progress import progress_bar


class SurveyBaseline(StrEnum):
    """Baselines for a text."""

    mask = "mask"
    pad = "pad"
    mean = "mean"


@command(
    "duat survey book.txt --out survey",
    "duat survey corpus.txt --out corpus --model DIR --workers 2 --shard 1/4",
)
def survey(
    *,
    texts: Annotated[
        list[str],
        typer.Argument(
            help="Files: .jsonl or .parquet with a field 'text', or one text in each; paths, or addresses such as"
            " s3://BUCKET/FILE and zip://FILE::ARCHIVE."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Directory of the survey; one that was begun there, with the same texts, goes on.")
    ],
    source: ModelWithoutChat,
    number: Annotated[
        Number,
        Fields(
            *("target", "contrast"),
            target="Token whose logit is explained at every place, instead of the margin of the next token.",
            contrast="Token whose logit is subtracted from the target's.",
        ),
    ],
    baseline: Annotated[
        SurveyBaseline | None,
        typer.Option(
            help="Split the difference of every window from this baseline: the mask, padding or the vocabulary's mean"
            " at every token but special ones."
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(min=2, help="Number of tokens in a window.")] = 128,
    shard: Annotated[
        str, typer.Option(help="I/N measures every N-th part from the I-th on, on one of N machines.")
    ] = "1/1",
    workers: Annotated[int, typer.Option(min=1, help="Number of processes, each of which reads the model.")] = 1,
    dask: Annotated[
        str | None,
        typer.Option(help="Address of a Dask scheduler, such as tcp://host:8786, whose workers measure the parts."),
    ] = None,
) -> Answer:
    """Survey a corpus: what every neuron, head and bias does for the tokens that stand there; tables as Parquet.

    With --target, for a token of one's own at every place; with --baseline, exact differences from a baseline.
    """
    config = source.open()
    from rich.text import Text

    from duat_jax.inputs.leading_space import space_notes
    from duat_jax.survey.executors import executor_of
    from duat_jax.survey.largest import render
    from duat_jax.survey.run import PART
    from duat_jax.survey.run import survey as run
    from duat_jax.survey.texts import read_corpus

    corpus, tokenizer = read_corpus(texts), source.tokenizer
    for note in space_notes(config, tokenizer, number.tokens):
        typer.echo(note, err=True)
    with (
        executor_of(workers, dask, start_jax, _notice) as executor,
        progress_bar("Surveying", "parts", rate=(PART * tokens, "tokens")) as progress,
    ):
        surveyed = run(
            source.model,
            corpus,
            out,
            target=number.target,
            contrast=number.contrast,
            baseline=None if baseline is None else baseline.value,
            tokens=tokens,
            dtype=source.dtype.value,
            add_special_tokens=not source.no_special_tokens,
            shard=_shard(shard),
            executor=executor,
            on_start=lambda size: typer.echo(size, err=True),
            progress=progress,
        )
    if surveyed is None:
        waiting = Text(f"Shard {shard} is measured; the tables are written when the other shards are too: {out}")
        return Answer(parts=[waiting])
    done = Text(f"{surveyed.manifest['predicted']:,} predicted tokens; the tables are in {out}")
    return Answer(parts=[done, "", render(surveyed, tokenizer)])


def _notice(sentence: str) -> None:
    """Say on standard error what a survey waits for."""
    typer.echo(f"duat: {sentence}", err=True)


def _shard(written: str) -> tuple[int, int]:
    from duat_jax.errors import InvalidInput

    index, _, count = written.partition("/")
    if not (index.isdecimal() and count.isdecimal()):
        raise InvalidInput(f"--shard {written!r}: give it as 1/4 for the first of four")
    return int(index), int(count)
