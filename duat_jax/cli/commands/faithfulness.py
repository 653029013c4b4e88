"""The command `duat faithfulness`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.groups import Fields
from duat_jax.cli.options import Source
from duat_jax.cli.output import Answer, StudyFiles
from duat_jax.cli.progress import progress_bar


@command(
    "duat faithfulness --texts 20",
    "duat faithfulness --model DIR --text sentences.txt --work faithfulness.work --json faithfulness.json",
)
def faithfulness(
    *,
    source: Annotated[
        Source,
        Fields(
            *("model", "no_special_tokens", "dtype"),
            model="A language model or sentence encoder: directory, GGUF file or hub:OWNER/NAME; the embedded model if"
            " absent.",
        ),
    ],
    text: Annotated[
        Path | None, typer.Option(help="A file with one text per line. If absent, sentences of Python's manual.")
    ] = None,
    texts: Annotated[int, typer.Option(min=2, help="Number of texts to draw.")] = 20,
    tokens: Annotated[int, typer.Option(min=5, help="Largest number of tokens of a language model's text.")] = 24,
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method; later ones are compared with the first. All if absent, secant first."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for drawing texts and for the random ranking.")] = 0,
    files: StudyFiles,
) -> Answer:
    """Measure which methods find the tokens that matter: remove tokens in their order, and run the model again."""
    config = source.open()
    from duat_jax.evaluation.deletion_plot import draw
    from duat_jax.evaluation.deletion_study import check, manual, study
    from duat_jax.evaluation.deletion_table import TARGETS, render
    from duat_jax.evaluation.running_text import read_texts

    lines = manual() if text is None else [line for line in read_texts([text])[0].splitlines() if line.strip()]
    question = source.tokenizer, lines, method or ()
    check(config, *question, count=texts, longest=tokens)
    model = source.load()
    with progress_bar("Texts", "texts") as report:
        result = study(*(model, *question), count=texts, longest=tokens, seed=seed, work=files.work, progress=report)
    target = TARGETS[config.head.kind]
    return Answer(
        record=result.as_dict(model=source.name, target=target, seed=seed),
        parts=render(result, target),
        figure=partial(draw, result.tables, result.value, target.headline),
    )
