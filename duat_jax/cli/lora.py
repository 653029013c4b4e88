"""The commands `duat lora train`, `duat lora diff` and `duat lora merge`."""

import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duat_jax.cli.commands import add
from duat_jax.cli.compiled import start_jax
from duat_jax.cli.explain import read_output
from duat_jax.cli.options import (
    Against,
    Batch,
    Chat,
    Contrast,
    Csv,
    Dtype,
    Json,
    Kept,
    Model,
    NoSpecialTokens,
    Plot,
    Position,
    Rate,
    Save,
    Steps,
)
from duat_jax.cli.output import (
    EXIT_STATUS,
    check_outputs,
    deliver,
    one_line_errors,
    require_no_failure,
    space_lines,
    to_json,
)
from duat_jax.cli.progress import loading_bar, progress_bar, working
from duat_jax.errors import BadText

if TYPE_CHECKING:
    from matplotlib.figure import Figure

lora = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)

Adapter = Annotated[Path, typer.Argument(help="Directory with adapter_config.json and adapter_model.safetensors.")]


@lora.callback(epilog=EXIT_STATUS)
def main() -> None:
    """Train low-rank adapters, show exactly what they change, and merge them into their model."""


def _name(model: Path | None) -> str:
    return "embedded" if model is None else str(model).encode(errors="replace").decode()


def train(
    text: Annotated[list[Path], typer.Option(help="Text file to train on. Repeat for several files.")],
    output: Annotated[Path, typer.Option(help="New directory for the adapter, in the layout of PEFT.")],
    model: Model = None,
    no_special_tokens: NoSpecialTokens = False,
    module: Annotated[
        list[str] | None,
        typer.Option(help="Linear layers, by the suffixes of their stored names, such as c_attn; all if absent."),
    ] = None,
    rank: Annotated[int, typer.Option(min=1, help="Rank of every update.")] = 8,
    alpha: Annotated[float, typer.Option(help="Each update is multiplied by alpha / rank.")] = 16.0,
    steps: Steps = 100,
    batch: Batch = 8,
    length: Annotated[int, typer.Option(min=2, help="Number of tokens in a piece.")] = 128,
    rate: Rate = 1e-3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the initial weights and of the order of the text.")] = 0,
    work: Annotated[
        Path | None,
        typer.Option(help="Keep the state in this file: the same command continues an interrupted training."),
    ] = None,
    plot: Plot = None,
    json_file: Json = None,
) -> None:
    """Train adapters on text, with the model frozen; the last tenth of the text is held out to measure them."""
    with one_line_errors(work, resumable=True):
        from duat_jax.files import check_new_directory

        check_outputs(plot, json_file, work, output)
        check_new_directory(output)
        numbers = {"--alpha": alpha, "--rate": rate}
        if wrong := [f"{name} {value}" for name, value in numbers.items() if not 0 < value < math.inf]:
            raise BadText(f"{', '.join(wrong)}: give a positive number")
        if find_spec("optax") is None:
            raise BadText("training needs optax: pip install 'duat-jax[train]'")
        start_jax()
        import duat_jax as duat
        from duat_jax.evaluation.running_text import mean_loss, read_texts, stream, windows
        from duat_jax.json_record import as_record
        from duat_jax.lora import adapt, new_adapters, save_adapters
        from duat_jax.lora.adapter import parameters_of
        from duat_jax.lora.record import LoraTrainingRecord
        from duat_jax.lora.training import train as train_adapters
        from duat_jax.training.next_token import Settings

        texts, config = read_texts(text), duat.load_config(model)
        if length > config.positions:
            raise BadText(f"--length {length}: the model's context is {config.positions} tokens; give shorter pieces")
        tokenizer = duat.load_tokenizer(model, add_special_tokens=not no_special_tokens)
        pieces = windows(stream(tokenizer, texts), None, length)
        held_out = max(1, len(pieces) // 10)
        if len(pieces) - held_out < batch:
            raise BadText(
                f"the text has {len(pieces)} pieces of {length} tokens, of which {held_out} are held out: give more"
                f" text than that for a --batch of {batch}, or shorter pieces"
            )
        with loading_bar() as progress:
            base = duat.load(model, progress=progress)
        adapters = new_adapters(base, module or (), rank=rank, alpha=alpha, seed=seed)
        with progress_bar("Training", "steps") as progress:
            settings = Settings(steps, batch, rate, seed)
            adapters, losses = train_adapters(
                base, adapters, pieces[:-held_out], settings, work=work, progress=progress
            )
        before, after = (mean_loss(model, pieces[-held_out:]) for model in (base, adapt(base, adapters)))
        record = as_record(
            LoraTrainingRecord,
            settings,
            model=_name(model),
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
        content = to_json(record)
        save_adapters(output, adapters, base, base=None if model is None else str(model))
        summary = (
            f"{len(adapters)} adapters of rank {rank}, {parameters_of(adapters):,} numbers, trained in {steps} steps",
            f"held-out text ({held_out} pieces): {before:z.4f} nats per token before, {after:z.4f} after",
            f"written to {output}",
        )

        def draw() -> "Figure":
            from duat_jax.lora.plot import draw_losses

            return draw_losses(losses, before, after)

        deliver(content, *summary, figure=draw, plot=plot, json_file=json_file)


def diff(
    adapter: Adapter,
    text: Annotated[str, typer.Argument(help="The text that the model reads.")],
    model: Model = None,
    no_special_tokens: NoSpecialTokens = False,
    chat: Chat = False,
    dtype: Kept = Dtype.float32,
    target: Annotated[
        str | None,
        typer.Option(help="Token to explain, or class; the adapted model's most probable if absent."),
    ] = None,
    contrast: Contrast = None,
    against: Against = None,
    position: Position = None,
    plot: Plot = None,
    save: Save = None,
    csv: Csv = None,
    json_file: Json = None,
) -> None:
    """Show exactly what adapters change: by term of the closed form, by adapter, and by parameter."""
    with one_line_errors():
        check_outputs(plot, json_file, save=save, table=csv)
        start_jax(float64=dtype is Dtype.float64)
        import duat_jax as duat
        from duat_jax.inputs.request import check
        from duat_jax.lora import load_adapters
        from duat_jax.lora.change import lora_change
        from duat_jax.lora.parameters import moved_parameters
        from duat_jax.lora.peft import require_base
        from duat_jax.lora.table import render_moved
        from duat_jax.models.encoding import encode
        from duat_jax.models.loader import skeleton

        config = duat.load_config(model)
        if config.image is not None:
            raise BadText(f"a {config.family} model reads images: this command reads texts")
        tokenizer = duat.load_tokenizer(model, add_special_tokens=not no_special_tokens, chat=chat)
        ids = encode(tokenizer, text, "the text")
        other_ids = None if against is None else encode(tokenizer, against, "the text to compare with")

        outputs = [
            read_output(config, tokenizer, given, label)
            for label, given in {"target": target, "contrast": contrast}.items()
        ]
        check(config, ids, outputs[0], outputs[1], other_ids, position, tokenizer)
        adapters = load_adapters(adapter, skeleton(config, dtype.value))
        with loading_bar() as progress:
            base = duat.load(model, dtype=dtype.value, progress=progress)
        require_base(adapter, base)
        with working("Comparing"):
            change = lora_change(
                base,
                adapters,
                ids,
                outputs[0],
                contrast=outputs[1],
                against=other_ids,
                position=position,
                tokenizer=tokenizer,
            )
        for label, completeness in (
            ("the sum of the three columns", change.completeness),
            ("the sum over the adapters", change.by_adapter),
            *(("the table of one of the four runs", corner) for corner in change.corners),
        ):
            require_no_failure(label, completeness)
        moved = moved_parameters(base, adapters, ids)
        content = to_json(change.as_dict(_name(model), moved=moved))
        files: dict[str, Any] = {"plot": plot, "json_file": json_file, "save": save, "table": csv}
        tokens = {"--target": target, "--contrast": contrast}
        notes = space_lines(config, tokenizer, tokens, change.predictions[1])
        deliver(content, *notes, change.table(), "", render_moved(moved), figure=change.plot, result=change, **files)


def merge(
    adapter: Adapter,
    output: Annotated[Path, typer.Option(help="New directory for the merged model.")],
    model: Model = None,
) -> None:
    """Write a model with adapters added to its weights, as a checkpoint that loads like any other."""
    with one_line_errors():
        from duat_jax.files import check_new_directory

        check_new_directory(output)
        start_jax()
        import duat_jax as duat
        from duat_jax.cli.output import show
        from duat_jax.lora import load_adapters, save_merged
        from duat_jax.lora.peft import require_base
        from duat_jax.models.loader import skeleton

        adapters = load_adapters(adapter, skeleton(duat.load_config(model), "float32"))
        with loading_bar() as progress:
            base = duat.load(model, progress=progress)
        require_base(adapter, base)
        save_merged(output, adapters, base, model)
        show(f"{len(adapters)} adapters merged into {_name(model)}, written to {output}")


for command in (train, diff, merge):
    add(lora, command, f"lora {command.__name__}")
