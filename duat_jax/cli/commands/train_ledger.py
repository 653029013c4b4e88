"""The command `duat train-ledger`."""

import math
import tempfile
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.options import Batch, Rate, Steps, Tokens, TrainedModel
from duat_jax.cli.output import Answer, PictureFiles
from duat_jax.cli.progress import progress_bar
from duat_jax.errors import InvalidInput


@command(
    "duat train-ledger 'for i in range(10' --text mine.py --steps 50",
    "duat train-ledger 'The capital of France is Paris' --text corpus.txt --model DIR --work states",
)
def train_ledger(
    *,
    text: Annotated[str, typer.Argument(help="The text whose mean loss is explained; it isn't trained on.")],
    files: Annotated[list[Path], typer.Option("--text", help="Text file to train on. Repeat for several files.")],
    source: TrainedModel,
    steps: Steps = 100,
    batch: Batch = 8,
    tokens: Tokens = 64,
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
    written: PictureFiles,
) -> Answer:
    """Train a model on text, and show exactly which weights and which pieces of text moved the loss of another text."""
    if not 0 < rate < math.inf:
        raise InvalidInput(f"--rate {rate}: give a positive number")
    if work is not None and work.exists() and not work.is_dir():
        raise InvalidInput(f"{work} isn't a directory: give another one for --work")
    if find_spec("optax") is None:
        raise InvalidInput("training needs optax: pip install 'duat-jax[train]'")
    config = source.open()
    import jax.numpy as jnp

    from duat_jax.evaluation.running_text import lines, read_texts, stream, token_losses, windows
    from duat_jax.files import check_new_directory, new_directory
    from duat_jax.models.checkpoint.place import open_checkpoint
    from duat_jax.models.encoding import encode
    from duat_jax.models.loader import EMBEDDED
    from duat_jax.models.saver import write_model
    from duat_jax.models.validation import require_layers
    from duat_jax.training import influence, train
    from duat_jax.training.next_token import TrainingSettings, next_token_run, parts_of_pieces
    from duat_jax.training.pieces import extremes, piece_of
    from duat_jax.training.pieces import render as render_pieces
    from duat_jax.training.record import as_training_record

    if output is not None:
        check_new_directory(output)
    texts = read_texts(files)
    require_layers(config)
    if config.head.kind != "next token":
        raise InvalidInput(f"a {config.family} model doesn't predict the next token: give a language model")
    if tokens > config.positions:
        raise InvalidInput(f"--tokens {tokens}: the model's context is {config.positions} tokens; give shorter pieces")
    tokenizer = source.tokenizer
    ids = encode(tokenizer, text, "the text")
    if not 2 <= len(ids) <= config.positions:
        raise InvalidInput(f"the text has {len(ids)} tokens: give one of 2 to {config.positions}")
    pieces, settings = windows(stream(tokenizer, texts), None, tokens), TrainingSettings(steps, batch, rate, seed)
    run = next_token_run(pieces, settings)
    base = source.load()
    with tempfile.TemporaryDirectory() if work is None else nullcontext(work) as folder:
        with progress_bar("Training", "steps") as progress:
            kept = train(run, base, folder, progress=progress)
        trained = kept.last
        with progress_bar("Tracing back", "steps") as progress:
            number = jnp.asarray([ids])
            result = influence(kept, lambda model: token_losses(model, number).mean(), progress=progress)
    parts, reads = parts_of_pieces(result, len(pieces), settings)
    begins = lines(tokenizer, texts)[::tokens][: len(pieces)]
    places = [f"{files[text]}:{line}" for text, line in begins]
    shown = [
        piece_of(int(i), pieces[i], parts[i], int(reads[i]), tokenizer, places[i]) for i in extremes(parts.sum(1), top)
    ]
    summary = [f"Explained:  mean loss of the text's tokens after the first one, in nats; {len(pieces)} pieces"]
    if output is not None:
        summary.append(f"{output}: the trained model")

    def save_trained() -> None:
        if output is not None:
            with new_directory(output) as checkpoint:
                write_model(checkpoint, trained, open_checkpoint(source.model or EMBEDDED), jnp.float32)

    table = render_pieces(shown, result.parts["examples"], result.difference)
    return Answer(
        result=result,
        record=as_training_record(result, source.name, config.family, text, settings, parts, shown, places),
        parts=[*summary, result.table(), "", table, "", result.ledger.table()],
        unbroken=[
            ("the sum of all parts", completeness)
            for completeness in (*result.ledger.completeness, result.completeness)
        ],
        directory=save_trained,
    )
