"""The command `duat survey`."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.options import Dtype, Kept, Model
from duat_jax.cli.output import one_line_errors, show
from duat_jax.cli.progress import progress_bar

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from rich.console import RenderableType

    from duat_jax.survey.tables import Survey

SHOWN = 10
"""The number of neurons that the command lists."""


def survey(
    texts: Annotated[
        list[Path], typer.Argument(help="Files: .jsonl or .parquet with a field 'text', or one text in each.")
    ],
    out: Annotated[
        Path, typer.Option(help="Directory of the survey; one that was begun there, with the same texts, goes on.")
    ],
    model: Model = None,
    dtype: Kept = Dtype.float32,
    tokens: Annotated[int, typer.Option(min=2, help="Number of tokens in a window.")] = 128,
    shard: Annotated[
        str, typer.Option(help="I/N measures every N-th part from the I-th on, on one of N machines.")
    ] = "1/1",
    workers: Annotated[int, typer.Option(min=1, help="Number of processes, each of which reads the model.")] = 1,
) -> None:
    """Survey a corpus: what every neuron, head and bias does for the tokens that stand there; tables as Parquet."""
    with one_line_errors():
        start_jax(float64=dtype is Dtype.float64)
        from rich.text import Text

        from duat_jax.survey.run import survey as run
        from duat_jax.survey.texts import read_corpus

        corpus = read_corpus(texts)
        with ExitStack() as stack:
            executor = stack.enter_context(_processes(workers, dtype)) if workers > 1 else None
            progress = stack.enter_context(progress_bar("Surveying", "parts"))
            found = run(
                model,
                corpus,
                out,
                tokens=tokens,
                dtype=dtype.value,
                shard=_shard(shard),
                executor=executor,
                progress=progress,
            )
        if found is None:
            show(Text(f"Shard {shard} is measured; the tables are written when the other shards are too: {out}"))
        else:
            show(Text(f"{found.manifest['predicted']:,} tokens; the tables are in {out}"), "", _table(found))


def _shard(written: str) -> tuple[int, int]:
    from duat_jax.errors import BadText

    index, _, count = written.partition("/")
    if not (index.isdecimal() and count.isdecimal()):
        raise BadText(f"--shard {written!r}: give it as 1/4 for the first of four")
    return int(index), int(count)


def _processes(workers: int, dtype: Dtype) -> "ProcessPoolExecutor":
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    return ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=partial(start_jax, float64=dtype is Dtype.float64)
    )


def _table(found: "Survey") -> "RenderableType":
    """Return the neurons with the largest mean contributions, and where each is strongest."""
    from rich.text import Text

    from duat_jax.display.tables import NumberTable

    largest = found.neurons.sort_values("contribution", key=abs, ascending=False).head(SHOWN)
    contexts = found.contexts.query("kind == 'neuron' and what == 'strongest activation' and rank < 3")
    table = NumberTable(labels=2, title="neurons by what they add to the margin of the token that stands there")
    for column in ("layer", "neuron", "a token", "active"):
        table.add_column(column, justify="right")
    table.add_column("strongest at")
    for row in largest.itertuples():
        of_neuron = contexts[(contexts.layer == row.layer) & (contexts.unit == row.neuron)]
        at = Text(", ".join(repr(token) for token in of_neuron.token))  # a token may look like markup
        table.add_row(str(row.layer), str(row.neuron), f"{row.contribution:+.4f}", f"{row.activation:.3f}", at)
    return table
