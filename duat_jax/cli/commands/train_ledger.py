"""The command `duat train-ledger`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.options import Batch, Rate, Steps, Tokens, TrainedModel, check_training
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
    check_training(rate=rate)
    if work is not None and work.exists() and not work.is_dir():
        raise InvalidInput(f"{work} isn't a directory: give another one for --work")
    config = source.open()
    from duat_jax.evaluation.running_text import lines, read_texts
    from duat_jax.files import check_new_directory
    from duat_jax.models.encoding import encode
    from duat_jax.models.saver import save_model
    from duat_jax.training.explained_training import explain_training
    from duat_jax.training.next_token import TrainingSettings, require_enough, training_pieces
    from duat_jax.training.pieces import render

    if output is not None:
        check_new_directory(output)
    texts, settings = read_texts(files), TrainingSettings(steps, batch, rate, seed)
    pieces = training_pieces(config, source.tokenizer, texts, tokens)
    require_enough(pieces, settings)
    ids = encode(source.tokenizer, text, "the text")
    if not 2 <= len(ids) <= config.positions:
        raise InvalidInput(f"the text has {len(ids)} tokens: give one of 2 to {config.positions}")
    result = explain_training(
        *(source.load(), pieces, ids, settings), work=work, progress=partial(progress_bar, unit="steps")
    )
    change = result.influence
    begins = lines(source.tokenizer, texts)[::tokens][: len(pieces)]
    places = [f"{files[text]}:{line}" for text, line in begins]
    shown = result.largest(pieces, source.tokenizer, places, top)
    summary = [f"Explained:  mean loss of the text's tokens after the first one, in nats; {len(pieces)} pieces"]
    directory = None
    if output is not None:
        summary.append(f"{output}: the trained model")
        directory = partial(save_model, result.trained, source.model, output)
    table = render(shown, change.parts["examples"], change.difference)
    return Answer(
        result=change,
        record=result.as_dict(
            model=source.name, family=config.family, text=text, pieces=shown, places=places, **settings._asdict()
        ),
        parts=[*summary, change.table(), "", table, "", change.ledger.table()],
        unbroken=[
            ("the sum of all parts", completeness)
            for completeness in (*change.ledger.completeness, change.completeness)
        ],
        directory=directory,
    )
