"""The commands `duat lora train`, `duat lora diff` and `duat lora merge`."""

import math
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duat_jax.cli.command import CODE, application, command, group
from duat_jax.cli.errors import EXIT_STATUS
from duat_jax.cli.groups import Fields
from duat_jax.cli.options import Batch, ModelOfTexts, Number, Rate, Source, Steps, Text, Tokens, TrainedModel
from duat_jax.cli.output import Answer, Files, PictureFiles
from duat_jax.cli.progress import progress_bar, working
from duat_jax.errors import InvalidInput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    numbers = {"--alpha": alpha, "--rate": rate}
    if wrong := [f"{name} {value}" for name, value in numbers.items() if not 0 < value < math.inf]:
        raise InvalidInput(f"{', '.join(wrong)}: give a positive number")
    if find_spec("optax") is None:
        raise InvalidInput("training needs optax: pip install 'duat-jax[train]'")
    config = source.open()
    from duat_jax.evaluation.running_text import mean_loss, read_texts, stream, windows
    from duat_jax.json_record import as_record
    from duat_jax.lora import adapt, new_adapters, save_adapters
    from duat_jax.lora.adapter import parameters_of
    from duat_jax.lora.record import LoraTrainingRecord
    from duat_jax.lora.training import train as train_adapters
    from duat_jax.training.next_token import TrainingSettings

    texts = read_texts(text)
    if length > config.positions:
        raise InvalidInput(f"--length {length}: the model's context is {config.positions} tokens; give shorter pieces")
    pieces = windows(stream(source.tokenizer, texts), None, length)
    held_out = max(1, len(pieces) // 10)
    if len(pieces) - held_out < batch:
        raise InvalidInput(
            f"the text has {len(pieces)} pieces of {length} tokens, of which {held_out} are held out: give more text"
            f" than that for a --batch of {batch}, or shorter pieces"
        )
    base = source.load()
    adapters = new_adapters(base, module or (), rank=rank, alpha=alpha, seed=seed)
    settings = TrainingSettings(steps, batch, rate, seed)
    with progress_bar("Training", "steps") as progress:
        adapters, losses = train_adapters(
            base, adapters, pieces[:-held_out], settings, work=files.work, progress=progress
        )
    before, after = (mean_loss(model, pieces[-held_out:]) for model in (base, adapt(base, adapters)))
    record = as_record(
        LoraTrainingRecord,
        settings,
        model=source.name,
        family=config.family,
        adapters=list(adapters),
        parameters=parameters_of(adapters),
        rank=rank,
        alpha=alpha,
        length=length,
        pieces={"trained_on": len(pieces) - held_out, "held_out": held_out},
        losses=losses,
        held_out_before=before,
        held_out_after=after,
    )

    def draw() -> "Figure":
        from duat_jax.lora.plot import draw_losses

        return draw_losses(losses, before, after)

    return Answer(
        record=record,
        parts=[
            f"{len(adapters)} adapters of rank {rank}, {parameters_of(adapters):,} numbers, trained in {steps} steps",
            f"held-out text ({held_out} pieces): {before:z.4f} nats per token before, {after:z.4f} after",
            f"written to {output}",
        ],
        figure=draw,
        directory=partial(
            save_adapters, output, adapters, base, base=None if source.model is None else str(source.model)
        ),
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
    from duat_jax.inputs.request import check_one
    from duat_jax.lora import load_adapters
    from duat_jax.lora.change import lora_change
    from duat_jax.lora.parameters import moved_parameters
    from duat_jax.lora.peft import require_base
    from duat_jax.lora.table import render_moved
    from duat_jax.models.loader import skeleton

    question = number.arguments(source)
    checked, _ = check_one(config, text, **question)
    adapters = load_adapters(adapter, skeleton(config, source.dtype.value))
    base = source.load()
    require_base(adapter, base)
    with working("Comparing"):
        change = lora_change(base, adapters, text, **question)
    moved = moved_parameters(base, adapters, checked.given)
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
