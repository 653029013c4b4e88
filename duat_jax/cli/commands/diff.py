"""The command `duat diff`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from duat_jax.cli.command import command
from duat_jax.cli.groups import Fields, OldName
from duat_jax.cli.options import Number, Source, Tokens
from duat_jax.cli.output import Answer, PictureFiles
from duat_jax.cli.progress import progress_bar
from duat_jax.errors import InvalidInput

EMBEDDED = "embedded"


@command(
    "duat diff embedded 'for i in range(10' --bits 4 --plot diff.png",
    "duat diff TUNED --reference BASE --text corpus.txt --pieces 32 --json diff.json",
)
def diff(
    *,
    model: Annotated[
        str,
        typer.Argument(help="Checkpoint directory, GGUF file or hub:OWNER/NAME[@REVISION]; or embedded."),
    ],
    text: Annotated[str | None, typer.Argument(help="The text that both models read.")] = None,
    old_text: Annotated[str | None, typer.Argument(hidden=True, help="TEXT after two models, the old order.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="The same of the model that is subtracted, of the same shape.")
    ] = None,
    bits: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=16,
            help="Compare MODEL with its layers' matrices rounded to so many bits, and MODEL itself as the reference.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="With --bits and --text: share of the rounded weights that may have 8 bits. The matrices with the"
            " largest parts get them, and the loss is measured on as many fresh pieces."
        ),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--text", help="Text file, from which pieces are drawn in the place of TEXT; repeat for several."),
    ] = None,
    pieces: Annotated[int, typer.Option(min=1, help="Number of pieces of text from files.")] = 16,
    tokens: Tokens = 128,
    seed: Annotated[int, typer.Option(min=0, help="Seed for drawing pieces.")] = 0,
    reading: Annotated[Source, Fields("no_special_tokens", "chat", "dtype")],
    number: Annotated[
        Number,
        Fields(
            *("target", "contrast", "against", "position"),
            target="Token or class whose logit is compared; the mean loss of a language model's text if absent.",
            position="Token at which the output is read; negative from the end; the last if absent.",
        ),
    ],
    top: Annotated[
        int,
        typer.Option(min=0, help="Number of parameters, those with the largest parts, that are run again."),
        OldName("--largest"),
    ] = 10,
    written: PictureFiles,
) -> Answer:
    """Show exactly which weights make a model and its reference give different numbers on a text, `A − B`."""
    if bits is None and reference is None and text is not None and (old_text is not None or files):
        renamed_order = "duat diff FIRST SECOND is written duat diff SECOND --reference FIRST now"
        typer.echo(f"{renamed_order}; the old order goes with the next release", err=True)
        model, text, old_text, reference = text, old_text, None, model
    if old_text is not None:
        raise InvalidInput("give one MODEL and one TEXT: the model that is subtracted is --reference")
    if (bits is None) == (reference is None):
        raise InvalidInput("give the --reference that MODEL is compared with, or --bits for MODEL rounded; one of them")
    if (text is None) == (not files):
        raise InvalidInput("give a TEXT, or files with --text")
    if budget is not None:
        if bits is None or not files:
            raise InvalidInput(
                "--budget is spent by the loss of text, and judged on fresh text: give --bits and --text"
            )
        about = {**number.tokens, "--against": number.against, "--position": number.position}
        if given := [name for name, option in about.items() if option is not None]:
            raise InvalidInput(f"--budget is spent by the loss of text: leave {', '.join(given)} out")
    names = (model, reference) if reference is not None else (f"{model} in {bits} bits", model)
    paths = [None if name == EMBEDDED else Path(name) for name in (model, reference or model)]
    source, of_reference = (replace(reading, model=path) for path in paths)
    config = source.open("this command reads texts")
    from duat_jax.display.terminal import render
    from duat_jax.evaluation.running_text import read_texts, stream, windows
    from duat_jax.inputs.question import ask
    from duat_jax.weights.budget import render as render_budget
    from duat_jax.weights.budget import require_budget, spend
    from duat_jax.weights.compute import diff as diff_of_models
    from duat_jax.weights.rounded import rounded
    from duat_jax.weights.validation import check_configs, require_same_tokens

    if bits is not None and budget is not None:
        require_budget(config, bits, budget)
    check_configs(of_reference.config, config, reading.dtype.value)
    texts = [text] if text is not None else read_texts(files or [])
    words = filter(None, (*texts, number.target, number.contrast, number.against))
    require_same_tokens(source.tokenizer, of_reference.tokenizer, words)
    inputs: Any = text
    if files:
        count = pieces if budget is None else 2 * pieces
        drawn = windows(stream(source.tokenizer, texts), count, tokens, seed=seed)
        inputs, fresh = drawn[:pieces], drawn[pieces:]
    question = number.arguments(source)
    ask(source, inputs, **question)
    loaded = source.load()
    after, before = (loaded, of_reference.load()) if bits is None else (rounded(loaded, bits), loaded)
    with progress_bar("Comparing", "runs") as progress:
        result = diff_of_models(after, inputs, reference=before, top=top, progress=progress, **question)
    tables, spent = [render(result.view(*names))], dict[str, Any]()
    if bits is not None and budget is not None:
        with progress_bar("Measuring", "losses") as progress:
            spent["budget"] = spend(before, result.parts, bits, budget, fresh, seed=seed, progress=progress)
        tables += ["", render_budget(spent["budget"])]
    return Answer(
        result=result,
        record=result.as_dict(*names, **spent),
        parts=[*source.notes(number.tokens), *tables],
        unbroken=[("the sum over the weights", completeness) for completeness in result.completeness],
    )
