"""The command `duat train-ledger`."""

import math
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.options import Batch, Csv, Json, Model, NoSpecialTokens, Plot, Rate, Save, Steps
from duat_jax.cli.output import check_outputs, deliver, one_line_errors, require_no_failure, to_json
from duat_jax.cli.progress import loading_bar, progress_bar
from duat_jax.errors import BadText


def train_ledger(
    text: Annotated[str, typer.Argument(help="The text whose mean loss is explained; it isn't trained on.")],
    files: Annotated[list[Path], typer.Option("--text", help="Text file to train on. Repeat for several files.")],
    model: Model = None,
    no_special_tokens: NoSpecialTokens = False,
    steps: Steps = 100,
    batch: Batch = 8,
    tokens: Annotated[int, typer.Option(min=2, help="Number of tokens in a piece.")] = 64,
    rate: Rate = 1e-3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order of the text.")] = 0,
    work: Annotated[
        Path | None,
        typer.Option(help="Keep the states in this directory: the same command continues an interrupted training."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Number of pieces that are shown on either side.")] = 5,
    output: Annotated[
        Path | None, typer.Option(help="Save the trained model in this new directory, a checkpoint like any other.")
    ] = None,
    plot: Plot = None,
    save: Save = None,
    csv: Csv = None,
    json_file: Json = None,
) -> None:
    """Train a model on text, and show exactly which weights and which pieces of text moved the loss of another text."""
    with ExitStack() as stack, one_line_errors(work, resumable=True):
        check_outputs(plot, json_file, None, work, output, save=save, table=csv)
        if not 0 < rate < math.inf:
            raise BadText(f"--rate {rate}: give a positive number")
        if work is not None and work.exists() and not work.is_dir():
            raise BadText(f"{work} isn't a directory: give another one for --work")
        if find_spec("optax") is None:
            raise BadText("training needs optax: pip install 'duat-jax[train]'")
        start_jax()
        import jax.numpy as jnp

        import duat_jax as duat
        from duat_jax.evaluation.running_text import lines, read_texts, stream, token_losses, windows
        from duat_jax.files import check_new_directory, new_directory
        from duat_jax.models.checkpoint.place import open_checkpoint
        from duat_jax.models.encoding import encode
        from duat_jax.models.loader import EMBEDDED
        from duat_jax.models.saver import write_model
        from duat_jax.models.validation import require_layers
        from duat_jax.training import influence, train
        from duat_jax.training.next_token import Settings, next_token_run, parts_of_pieces
        from duat_jax.training.pieces import extremes, piece_of
        from duat_jax.training.pieces import render as render_pieces
        from duat_jax.training.record import as_training_record

        if output is not None:
            check_new_directory(output)
        texts, config = read_texts(files), duat.load_config(model)
        require_layers(config)
        if config.head.kind != "next token":
            raise BadText(f"a {config.family} model doesn't predict the next token: give a language model")
        if tokens > config.positions:
            raise BadText(f"--tokens {tokens}: the model's context is {config.positions} tokens; give shorter pieces")
        tokenizer = duat.load_tokenizer(model, add_special_tokens=not no_special_tokens)
        ids = encode(tokenizer, text, "the text")
        if not 2 <= len(ids) <= config.positions:
            raise BadText(f"the text has {len(ids)} tokens: give one of 2 to {config.positions}")
        pieces, settings = windows(stream(tokenizer, texts), None, tokens), Settings(steps, batch, rate, seed)
        run = next_token_run(pieces, settings)
        with loading_bar() as progress:
            base = duat.load(model, progress=progress)
        folder = stack.enter_context(tempfile.TemporaryDirectory()) if work is None else work
        with progress_bar("Training", "steps") as progress:
            kept = train(run, base, folder, progress=progress)
        with progress_bar("Tracing back", "steps") as progress:
            number = jnp.asarray([ids])
            found = influence(kept, lambda model: token_losses(model, number).mean(), progress=progress)
        for completeness in (*found.ledger.completeness, found.completeness):
            require_no_failure("the sum of all parts", completeness)
        parts, reads = parts_of_pieces(found, len(pieces), settings)
        begins = lines(tokenizer, texts)[::tokens][: len(pieces)]
        places = [f"{files[text]}:{line}" for text, line in begins]
        shown = [
            piece_of(int(i), pieces[i], parts[i], int(reads[i]), tokenizer, places[i])
            for i in extremes(parts.sum(1), top)
        ]
        name = "embedded" if model is None else str(model)
        content = to_json(as_training_record(found, name, config.family, text, settings, parts, shown, places))
        table = render_pieces(shown, found.parts["examples"], found.difference)
        explained = f"Explained:  mean loss of the text's tokens after the first one, in nats; {len(pieces)} pieces"
        summary = [explained]
        if output is not None:
            with new_directory(output) as checkpoint:
                write_model(checkpoint, kept.last, open_checkpoint(EMBEDDED if model is None else model), jnp.float32)
            summary.append(f"{output}: the trained model")
        written: dict[str, Any] = {"plot": plot, "json_file": json_file, "save": save, "table": csv}
        deliver(
            content,
            *summary,
            found.table(),
            "",
            table,
            "",
            found.ledger.table(),
            figure=found.plot,
            result=found,
            **written,
        )
