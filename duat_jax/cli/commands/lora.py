"""The commands `duat lora train`, `duat lora diff` and `duat lora merge`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from duat_jax.cli.command import CODE, application, command, group
from duat_jax.cli.errors import EXIT_STATUS
from duat_jax.cli.groups import Fields
from duat_jax.cli.options import (
    Batch,
    ModelOfTexts,
    Number,
    Rate,
    Source,
    Steps,
    Text,
    Tokens,
    TrainedModel,
    check_training,
)
from duat_jax.cli.output import Answer, Files, PictureFiles
from duat_jax.cli.progress import progress_bar, working

lora = group(name="lora", short_help="Train low-rank adapters, show exactly what they change, and merge them.")

Adapter = Annotated[Path, typer.Argument(help="Directory with adapter_config.json and adapter_model.safetensors.")]


@lora.callback(epilog=EXIT_STATUS)
def main() -> None:
    """Train low-rank adapters, show exactly what they change, and merge them into their model."""


@command(
    "duat lora train --text mine.txt --output adapter",
    "duat lora train --text mine.txt --output small --model DIR --rank 4",
    within=lora,
)
def train(
    *,
    text: Annotated[list[Path], typer.Option(help="Text file to train on. Repeat for several files.")],
    output: Annotated[Path, typer.Option(help="New directory for the adapter, in the layout of PEFT.")],
    source: TrainedModel,
    module: Annotated[
        list[str] | None,
        typer.Option(help="Linear layers, by the suffixes of their stored names, such as c_attn; all if absent."),
    ] = None,
    rank: Annotated[int, typer.Option(min=1, help="Rank of every update.")] = 8,
    alpha: Annotated[float, typer.Option(help="Each update is multiplied by alpha / rank.")] = 16.0,
    steps: Steps = 100,
    batch: Batch = 8,
    length: Tokens = 128,
    rate: Rate = 1e-3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the initial weights and of the order of the text.")] = 0,
    files: Annotated[
        Files,
        Fields(
            *("work", "plot", "json_file"),
            work="Keep the state in this file: the same command continues an interrupted training.",
        ),
    ],
) -> Answer:
    """Train adapters on text, with the model frozen; the last tenth of the text is held out to measure them."""
    from duat_jax.files import check_new_directory

    check_new_directory(output)
    check_training(alpha=alpha, rate=rate)
    config = source.open()
    from duat_jax.evaluation.running_text import read_texts
    from duat_jax.lora import new_adapters, save_adapters
    from duat_jax.lora.plot import draw_losses
    from duat_jax.lora.training import held_out_of, train_and_measure
    from duat_jax.training.next_token import TrainingSettings, training_pieces

    settings = TrainingSettings(steps, batch, rate, seed)
    pieces = training_pieces(config, source.tokenizer, read_texts(text), length)
    held_out_of(pieces, settings)
    base = source.load()
    adapters = new_adapters(base, module or (), rank=rank, alpha=alpha, seed=seed)
    with progress_bar("Training", "steps") as progress:
        result = train_and_measure(base, adapters, pieces, settings, work=files.work, progress=progress)
    given = {"model": source.name, "family": config.family, "rank": rank, "alpha": alpha, "length": length}
    stored_base = None if source.model is None else str(source.model)
    return Answer(
        record=result.as_dict(**given, **settings._asdict()),
        parts=[
            f"{len(adapters)} adapters of rank {rank}, {result.parameters:,} numbers, trained in {steps} steps",
            f"held-out text ({result.pieces.held_out} pieces): {result.held_out_before:z.4f} nats per token before,"
            f" {result.held_out_after:z.4f} after",
            f"written to {output}",
        ],
        figure=partial(draw_losses, result.losses, result.held_out_before, result.held_out_after),
        directory=partial(save_adapters, output, result.adapters, base, base=stored_base),
    )


@command(
    f"duat lora diff adapter {CODE}",
    'duat lora diff adapter "The capital of France is" --model DIR --target " Paris" --plot diff.png',
    within=lora,
)
def diff(
    *,
    adapter: Adapter,
    text: Text,
    source: ModelOfTexts,
    number: Annotated[
        Number,
        Fields(
            *("target", "contrast", "against", "position"),
            target="Token to explain, or class; the adapted model's most probable if absent.",
            position="Token at which the output is read; negative from the end; the last if absent.",
        ),
    ],
    files: PictureFiles,
) -> Answer:
    """Show exactly what adapters change: by term of the closed form, by adapter, and by parameter."""
    config = source.open("this command reads texts")
    from duat_jax.inputs.question import ask_once
    from duat_jax.lora import load_adapters
    from duat_jax.lora.change import lora_change
    from duat_jax.lora.parameters import moved_parameters
    from duat_jax.lora.peft import require_base
    from duat_jax.lora.table import render_moved
    from duat_jax.models.loader import skeleton

    question = number.arguments(source)
    given = ask_once(source, text, **question).input.given
    adapters = load_adapters(adapter, skeleton(config, source.dtype.value))
    base = source.load()
    require_base(adapter, base)
    with working("Comparing"):
        change = lora_change(base, adapters, text, **question)
    moved = moved_parameters(base, adapters, given)
    return Answer(
        result=change,
        record=change.as_dict(source.name, moved=moved),
        parts=[
            *source.notes(number.tokens, change.predictions[1]),
            *(change.table(), "", render_moved(moved)),
        ],
        unbroken=[
            ("the sum of the three columns", change.completeness),
            ("the sum over the adapters", change.by_adapter),
            *(("the table of one of the four runs", corner) for corner in change.corners),
        ],
    )


@command(
    "duat lora merge adapter --output merged",
    "duat lora merge small --output larger --model DIR",
    within=lora,
)
def merge(
    *,
    adapter: Adapter,
    output: Annotated[Path, typer.Option(help="New directory for the merged model.")],
    source: Annotated[Source, Fields("model")],
) -> Answer:
    """Write a model with adapters added to its weights, as a checkpoint that loads like any other."""
    from duat_jax.files import check_new_directory

    check_new_directory(output)
    config = source.open()
    from duat_jax.lora import load_adapters, save_merged
    from duat_jax.lora.peft import require_base
    from duat_jax.models.loader import skeleton

    adapters = load_adapters(adapter, skeleton(config, source.dtype.value))
    base = source.load()
    require_base(adapter, base)
    save_merged(output, adapters, base, source.model)
    return Answer(parts=[f"{len(adapters)} adapters merged into {source.name}, written to {output}"])


application.add_typer(lora)
