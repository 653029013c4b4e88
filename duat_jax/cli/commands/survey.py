"""The command `duat survey`."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.compiled import start_jax
from duat_jax.cli.groups import Fields
from duat_jax.cli.options import ModelWithoutChat, Number
from duat_jax.cli.output import Answer
from duat_jax.cli.progress import progress_bar

if TYPE_CHECKING:
    from concurrent.futures import Executor, ProcessPoolExecutor

    from rich.console import RenderableType
    from tokenizers import Tokenizer

    from duat_jax.survey.tables import Survey

SHOWN = 10
"""The number of neurons that the command lists."""

ANSWERS_WITHIN = 10.0
"""The seconds in which Dask's scheduler has to answer."""


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
    from duat_jax.survey.run import PART
    from duat_jax.survey.run import survey as run
    from duat_jax.survey.texts import read_corpus

    corpus, tokenizer = read_corpus(texts), source.tokenizer
    for note in space_notes(config, tokenizer, number.tokens):
        typer.echo(note, err=True)
    target, contrast = source.output(number.target, "target"), source.output(number.contrast, "contrast")
    with ExitStack() as stack:
        executor = stack.enter_context(_executor(workers, dask)) if workers > 1 or dask is not None else None
        progress = stack.enter_context(progress_bar("Surveying", "parts", rate=(PART * tokens, "tokens")))
        surveyed = run(
            source.model,
            corpus,
            out,
            target=target,
            contrast=contrast,
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
    title = _title(_named(tokenizer, target), _named(tokenizer, contrast), baseline)
    done = Text(f"{surveyed.manifest['predicted']:,} predicted tokens; the tables are in {out}")
    return Answer(parts=[done, "", _table(surveyed, tokenizer, title)])


def _shard(written: str) -> tuple[int, int]:
    from duat_jax.errors import InvalidInput

    index, _, count = written.partition("/")
    if not (index.isdecimal() and count.isdecimal()):
        raise InvalidInput(f"--shard {written!r}: give it as 1/4 for the first of four")
    return int(index), int(count)


def _executor(workers: int, dask: str | None) -> "AbstractContextManager[Executor]":
    from duat_jax.errors import InvalidInput

    if dask is None:
        return _processes(workers)
    if workers > 1:
        raise InvalidInput("--workers starts processes here, and --dask has workers of its own: give one of them")
    return _dask(dask)


def _processes(workers: int) -> "ProcessPoolExecutor":
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=start_jax)


@contextmanager
def _dask(address: str) -> "Iterator[Executor]":
    """Yield an executor of Dask's workers; what is asked of them and not done is cancelled in the end."""
    from duat_jax.errors import DuatError, InvalidInput

    try:
        from distributed import Client
        from distributed.comm import connect
    except ImportError as error:
        raise DuatError(f"--dask needs {error.name}: pip install 'duat-jax[dask]'") from None
    # They print the errors that are raised, and those of a lost connection, with their tracebacks.
    for name in ("distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)

    async def reach() -> None:
        async with asyncio.timeout(ANSWERS_WITHIN):  # the client's own limit leaves out a server that says nothing
            await (await connect(address)).close()

    try:
        asyncio.run(reach())
        client = Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        why = str(error) or f"no scheduler answers within {ANSWERS_WITHIN:.0f} s"
        raise InvalidInput(f"--dask {address}: {why}; give the address that the scheduler prints") from None
    with client:
        # Clusters that start workers when there is work have none before.
        if not client.nthreads():
            typer.echo(
                f"duat: {address} has no workers, and the survey waits for one: dask worker {address} --nthreads 1",
                err=True,
            )
        # A part is a file: whether it was measured is what the directory says, not a result that Dask remembers.
        try:
            yield client.get_executor(pure=False)
        except (ImportError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "deserialization" not in str(error):
                raise
            raise DuatError(
                "Dask's scheduler and workers can't read the task: install this duat-jax there too"
            ) from None


def _named(tokenizer: "Tokenizer", token: int | str | None) -> str | None:
    from duat_jax.inputs.labels import readable
    from duat_jax.models.vocabulary.token import quoted_label

    return quoted_label(readable(tokenizer, [token])[0]) if isinstance(token, int) else token


def _title(target: str | None, contrast: str | None, baseline: SurveyBaseline | None) -> str:
    from duat_jax.inputs.baselines import BASELINES

    number = "margin of the token that stands there" if target is None else f"logit of {target}"
    if contrast is not None:
        number += f" minus that of {contrast}"
    if baseline is None:
        return f"neurons by what they add to the {number}"
    return f"neurons by their part in the difference from {BASELINES[baseline.value]}: {number}"


def _table(found: "Survey", tokenizer: "Tokenizer", title: str) -> "RenderableType":
    """Return the neurons with the largest mean parts, and where each is strongest."""
    from rich.markup import escape
    from rich.text import Text

    from duat_jax.display.tables import NumberTable
    from duat_jax.inputs.labels import readable
    from duat_jax.models.vocabulary.token import quoted_label
    from duat_jax.survey.tables import column

    part = column(found.manifest)
    largest = found.neurons.sort_values(part, key=abs, ascending=False).head(SHOWN)
    contexts = found.contexts.query("kind == 'neuron' and what == 'strongest activation' and rank < 3")
    table = NumberTable(labels=2, title=escape(title))
    for name in ("layer", "neuron", "a token", "active"):
        table.add_column(name, justify="right")
    table.add_column("strongest at")
    for row in largest.itertuples():
        of_neuron = contexts[(contexts.layer == row.layer) & (contexts.unit == row.neuron)]
        # A token may look like markup.
        at = Text(", ".join(map(quoted_label, readable(tokenizer, of_neuron.token_id.tolist()))))
        table.add_row(str(row.layer), str(row.neuron), f"{getattr(row, part):+z.4f}", f"{row.activation:z.3f}", at)
    return table
