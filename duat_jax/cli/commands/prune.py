"""The command `duat prune`."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.options import Tokens, TrainedModel
from duat_jax.cli.output import Answer, StudyFiles
from duat_jax.cli.progress import progress_bar
from duat_jax.errors import InvalidInput


class StorageDtype(StrEnum):
    """The storage dtype of a saved model."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"


@command(
    "duat prune --text book.txt --fraction 0.3",
    "duat prune --text book.txt --fraction 0.5 --model DIR --method fisher --output smaller",
)
def prune(
    *,
    text: Annotated[list[Path], typer.Option(help="A text file to calibrate on. Repeat for several files.")],
    fraction: Annotated[list[float], typer.Option(help="Fraction of neurons or layers to remove, from 0 up to 1.")],
    what: Annotated[str, typer.Option(help="Units to remove: the MLPs' 'neurons', or whole 'layers'.")] = "neurons",
    source: TrainedModel,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Ranking of neurons: contributions if absent, fisher, taylor, fluctuation, flap, wanda, magnitude"
            " or random; layers: contributions, block influence or random."
        ),
    ] = None,
    compensate: Annotated[
        list[str] | None,
        typer.Option(help="Compensation for removed units: refit if absent, mean or none."),
    ] = None,
    budget: Annotated[
        str, typer.Option(help="Budget of each layer: equal, together (all ranked as one list) or measured.")
    ] = "equal",
    layer: Annotated[list[int] | None, typer.Option(help="A layer to prune, from 0; all if absent.")] = None,
    pieces: Annotated[
        int,
        typer.Option(min=1, help="Number of pieces of text to calibrate on; losses are measured on as many others."),
    ] = 64,
    tokens: Tokens = 128,
    seed: Annotated[int, typer.Option(min=0, help="Seed for drawing pieces.")] = 0,
    output: Annotated[
        Path | None, typer.Option(help="Save the pruned model in this new directory; requires a single pruner.")
    ] = None,
    dtype: Annotated[StorageDtype, typer.Option(help="Storage dtype of the saved tensors.")] = StorageDtype.float16,
    files: StudyFiles,
) -> Answer:
    """Prune a language model's neurons or layers by calibration text, and measure the loss on other pieces."""
    methods, compensations = method or ["contributions"], compensate or ["refit"]
    config = source.open()
    import jax.numpy as jnp

    from duat_jax.evaluation.running_text import read_texts, stream, windows
    from duat_jax.files import check_new_directory
    from duat_jax.models.loader import skeleton
    from duat_jax.pruning.checkpoint import require_writable, saved_again
    from duat_jax.pruning.plot import draw
    from duat_jax.pruning.pruner import check
    from duat_jax.pruning.study import pruners_of, study

    pruners = pruners_of(methods, compensations, fraction, budget, what)
    if output is not None:
        check_new_directory(output)
        if len(pruners) > 1:
            raise InvalidInput("one pruned model is saved: give one --method, --compensate and --fraction")
    shapes = skeleton(config, source.dtype.value)
    check(shapes, fraction, methods, compensations, budget, layer, what)
    if output is not None:
        require_writable(shapes, pruners[0].compensation)
    drawn = windows(stream(source.tokenizer, read_texts(text)), 2 * pieces, tokens, seed=seed)
    model = source.load()
    settings = {"model": source.name, "seed": seed, "pieces": pieces, "tokens": tokens, "layers": layer}
    saved = None
    if output is not None:
        saved = partial(saved_again, source=source.model, directory=output, dtype=jnp.dtype(dtype.value))
    with progress_bar("Pruning", "models") as progress:
        result = study(
            *(model, pruners, drawn),
            layers=layer,
            seed=seed,
            saved=saved,
            work=files.work,
            settings=settings,
            progress=progress,
        )
    summary = [f"{pieces} pieces of {tokens} tokens to calibrate on, and as many others of the same files"]
    if output is not None:
        summary.append(f"{output}: {result.pruned[0].parameters:,} of {result.whole.parameters:,} parameters")
    return Answer(
        record=result.as_dict(**settings),
        parts=[*summary, "", result.table(source.name)],
        figure=partial(draw, result.whole.loss, result.losses),
    )
