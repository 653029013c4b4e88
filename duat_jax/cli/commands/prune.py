"""The command `duat prune`."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duat_jax.cli.command import command
from duat_jax.cli.options import Tokens, TrainedModel
from duat_jax.cli.output import Answer, StudyFiles
from duat_jax.cli.progress import progress_bar
from duat_jax.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import RenderableType


class StorageDtype(StrEnum):
    """The storage dtype of a saved model."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"


def _table(title: str, dense: dict[str, Any], rows: list[dict[str, Any]]) -> "RenderableType":
    from duat_jax.display.tables import NumberTable

    table = NumberTable(labels=2, title=title)
    for column in ("ranked by", "in their place", "removed", "loss", "more than whole"):
        table.add_column(column, justify="left" if column in ("ranked by", "in their place") else "right")
    table.add_row("the whole model", "", "", f"{dense['loss']:z.4f}", "")
    for row in rows:
        more = row["loss"] - dense["loss"]
        table.add_row(
            row["method"], row["compensation"], f"{row['fraction']:.0%}", f"{row['loss']:z.4f}", f"{more:+z.4f}"
        )
    return table


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

    import duat_jax as duat
    from duat_jax.evaluation.journal import Journal, fingerprint
    from duat_jax.evaluation.running_text import mean_loss, read_texts, stream, windows
    from duat_jax.files import check_new_directory
    from duat_jax.json_record import as_record
    from duat_jax.models.loader import skeleton
    from duat_jax.pruning.checkpoint import require_writable, save_pruned
    from duat_jax.pruning.layers import how_many_layers, prune_layers
    from duat_jax.pruning.plot import draw
    from duat_jax.pruning.pruner import check
    from duat_jax.pruning.pruner import prune as prune_model
    from duat_jax.pruning.record import PruningRecord
    from duat_jax.pruning.study import Pruner, losses_of

    pruners = [
        Pruner(name, how, share, budget, what)
        for name in dict.fromkeys(methods)
        for how in dict.fromkeys(compensations)
        for share in dict.fromkeys(fraction)
    ]
    if output is not None:
        check_new_directory(output)
        if len(pruners) > 1:
            raise InvalidInput("one pruned model is saved: give one --method, --compensate and --fraction")
    shapes = skeleton(config, source.dtype.value)
    check(shapes, fraction, methods, compensations, budget, layer, what)
    if output is not None:
        require_writable(shapes, pruners[0].compensation)
    drawn = windows(stream(source.tokenizer, read_texts(text)), 2 * pieces, tokens, seed=seed)
    dense_model = source.load()
    if what == "layers":  # only whole layers are removed: the reported fraction is the actual one
        layers = dense_model.config.layers
        shares = [
            pruner._replace(fraction=how_many_layers(dense_model, pruner.fraction) / layers) for pruner in pruners
        ]
        pruners = list(dict.fromkeys(shares))
    ids, measured_ids = drawn[:pieces], drawn[pieces:]
    settings = {"model": source.name, "seed": seed, "pieces": pieces, "tokens": tokens, "layers": layer}
    work_of = settings | {"text": fingerprint(drawn), "model": fingerprint(dense_model, dense_model.config)}
    journal = Journal(files.work, work_of)
    dense = {
        "loss": journal.once("dense", lambda: mean_loss(dense_model, measured_ids)),
        "parameters": _parameters(dense_model),
    }
    summary = [f"{pieces} pieces of {tokens} tokens to calibrate on, and as many others of the same files"]
    if output is None:
        with progress_bar("Pruning", "models") as progress:
            losses = losses_of(
                dense_model, pruners, ids, measured_ids, layers=layer, seed=seed, journal=journal, progress=progress
            )
        rows = [{**pruner._asdict(), "loss": loss} for pruner, loss in losses.items()]
    else:
        (pruner,) = pruners
        with progress_bar("Calibrating", "pieces") as progress:
            if what == "layers":
                smaller = prune_layers(
                    dense_model,
                    ids,
                    pruner.fraction,
                    method=pruner.method,
                    compensation=pruner.compensation,
                    seed=seed,
                )
            else:
                smaller = prune_model(
                    dense_model,
                    ids,
                    pruner.fraction,
                    method=pruner.method,
                    compensation=pruner.compensation,
                    budget=pruner.budget,
                    layers=layer,
                    seed=seed,
                    progress=progress,
                )
        save_pruned(smaller, source.model, output, dtype=jnp.dtype(dtype.value))
        # The reported loss is that of the saved file.
        saved = duat.load(output)
        losses = {pruner: mean_loss(saved, measured_ids)}
        sizes = {"neurons": [block.neurons for block in saved.config.blocks], "parameters": _parameters(saved)}
        rows = [{**pruner._asdict(), "loss": losses[pruner], **sizes}]
        summary.append(f"{output}: {_parameters(saved):,} of {dense['parameters']:,} parameters")
    return Answer(
        record=as_record(PruningRecord, None, **settings, whole=dense, pruned=rows),
        parts=[*summary, "", _table(source.name, dense, rows)],
        figure=partial(draw, dense["loss"], losses),
    )


def _parameters(model: Any) -> int:
    import jax

    return sum(leaf.size for leaf in jax.tree.leaves(model))
