"""The command `duat prune`."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.options import Json, Model, Plot
from duat_jax.cli.output import check_outputs, deliver, one_line_errors, to_json
from duat_jax.cli.progress import loading_bar, progress_bar

if TYPE_CHECKING:
    from rich.console import RenderableType


class Stored(StrEnum):
    """What the tensors of a saved model are stored as."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"


def _table(title: str, dense: dict[str, Any], rows: list[dict[str, Any]]) -> "RenderableType":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold", header_style="dim")
    for column in ("ranked by", "in their place", "removed", "loss", "more than whole"):
        table.add_column(column, justify="left" if column in ("ranked by", "in their place") else "right")
    table.add_row("the whole model", "", "", f"{dense['loss']:.4f}", "")
    for row in rows:
        more = row["loss"] - dense["loss"]
        table.add_row(
            row["method"], row["compensation"], f"{row['fraction']:.0%}", f"{row['loss']:.4f}", f"{more:+.4f}"
        )
    return table


def prune(
    text: Annotated[list[Path], typer.Option(help="A text file to calibrate on. Give several by several --text.")],
    fraction: Annotated[list[float], typer.Option(help="Which share of them goes, from 0 up to 1.")],
    what: Annotated[str, typer.Option(help="What goes: the MLPs' neurons, or whole layers.")] = "neurons",
    model: Model = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="How neurons are ranked: contributions if absent, fisher, taylor, fluctuation, flap, wanda, magnitude"
            " or random; layers: contributions, block influence or random."
        ),
    ] = None,
    compensate: Annotated[
        list[str] | None,
        typer.Option(help="What takes their place: refit if absent, mean or none."),
    ] = None,
    budget: Annotated[
        str, typer.Option(help="How many each layer loses: equal, together (all ranked as one list) or measured.")
    ] = "equal",
    layer: Annotated[list[int] | None, typer.Option(help="A layer that is pruned, from 0; all if absent.")] = None,
    pieces: Annotated[
        int,
        typer.Option(min=1, help="On how many pieces of the text to calibrate; on as many others losses are taken."),
    ] = 64,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each piece.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Which pieces are drawn.")] = 0,
    output: Annotated[
        Path | None, typer.Option(help="Save the pruned model in this new directory; one way to prune is asked then.")
    ] = None,
    dtype: Annotated[Stored, typer.Option(help="What its tensors are stored as.")] = Stored.float16,
    work: Annotated[
        Path | None, typer.Option(help="Keep what is finished in this file; a killed run goes on from it.")
    ] = None,
    plot: Plot = None,
    json_file: Json = None,
) -> None:
    """Prune a language model's neurons or layers by calibration text, and measure what is lost on other pieces."""
    with one_line_errors():
        check_outputs(plot, json_file, work, output)
        methods, compensations = method or ["contributions"], compensate or ["refit"]
        start_jax()
        import jax.numpy as jnp

        import duat_jax as duat
        from duat_jax.evaluation.journal import Journal, fingerprint
        from duat_jax.evaluation.running_text import mean_loss, read_texts, stream, windows
        from duat_jax.models.checkpoint.new_directory import check_new_directory
        from duat_jax.pruning.checkpoint import require_writable, save_pruned
        from duat_jax.pruning.layers import how_many_layers, prune_layers
        from duat_jax.pruning.plot import draw
        from duat_jax.pruning.pruner import check
        from duat_jax.pruning.pruner import prune as prune_model
        from duat_jax.pruning.study import Pruner, losses_of

        asked = [
            Pruner(one, how, share, budget, what)
            for one in dict.fromkeys(methods)
            for how in dict.fromkeys(compensations)
            for share in dict.fromkeys(fraction)
        ]
        if output is not None:
            check_new_directory(output)
            if len(asked) > 1:
                raise duat.BadText("one pruned model is saved: give one --method, --compensate and --fraction")
        texts = read_texts(text)
        with loading_bar() as progress:
            whole = duat.load(model, progress=progress)
        check(whole, fraction, methods, compensations, budget, layer, what)
        if what == "layers":  # only whole ones go: what is told is the share that does
            layers = whole.config.layers
            shares = [one._replace(fraction=how_many_layers(whole, one.fraction) / layers) for one in asked]
            asked = list(dict.fromkeys(shares))
        if output is not None:
            require_writable(whole, asked[0].compensation)
        drawn = windows(stream(duat.load_tokenizer(model), texts), 2 * pieces, tokens, seed=seed)
        ids, others = drawn[:pieces], drawn[pieces:]
        name = "embedded" if model is None else str(model).encode(errors="replace").decode()
        told = {"model": name, "seed": seed, "pieces": pieces, "tokens": tokens, "layers": layer}
        work_of = told | {"text": fingerprint(drawn), "model": fingerprint(whole, whole.config)}
        journal = Journal(work, work_of)
        dense = {"loss": journal.once("dense", lambda: mean_loss(whole, others)), "parameters": _parameters(whole)}
        said = [f"{pieces} pieces of {tokens} tokens to calibrate on, and as many others of the same files"]
        if output is None:
            with progress_bar("Pruning", "models") as progress:
                losses = losses_of(
                    whole, asked, ids, others, layers=layer, seed=seed, journal=journal, progress=progress
                )
            rows = [{**one._asdict(), "loss": loss} for one, loss in losses.items()]
        else:
            (one,) = asked
            with progress_bar("Calibrating", "pieces") as progress:
                if what == "layers":
                    smaller = prune_layers(
                        whole, ids, one.fraction, method=one.method, compensation=one.compensation, seed=seed
                    )
                else:
                    smaller = prune_model(
                        whole,
                        ids,
                        one.fraction,
                        method=one.method,
                        compensation=one.compensation,
                        budget=one.budget,
                        layers=layer,
                        seed=seed,
                        progress=progress,
                    )
            save_pruned(smaller, model, output, dtype=jnp.dtype(dtype.value))
            # What is told is told of the file.
            saved = duat.load(output)
            losses = {one: mean_loss(saved, others)}
            sizes = {"neurons": [block.neurons for block in saved.config.blocks], "parameters": _parameters(saved)}
            rows = [{**one._asdict(), "loss": losses[one], **sizes}]
            said.append(f"{output}: {_parameters(saved):,} of {dense['parameters']:,} parameters")
        content = to_json({**told, "whole": dense, "pruned": rows})
        figure = partial(draw, dense["loss"], losses)
        deliver(content, *said, "", _table(name, dense, rows), figure=figure, plot=plot, json_file=json_file)


def _parameters(model: Any) -> int:
    import jax

    return sum(leaf.size for leaf in jax.tree.leaves(model))
