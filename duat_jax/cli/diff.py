"""The command `duat diff`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.explain import check_options, read_output
from duat_jax.cli.options import Against, Chat, Contrast, Csv, Dtype, Json, Kept, NoSpecialTokens, Plot, Position, Save
from duat_jax.cli.output import deliver, one_line_errors, require_no_failure, space_lines, to_json
from duat_jax.cli.progress import loading_bar, progress_bar
from duat_jax.errors import BadText

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EMBEDDED = "embedded"


def diff(
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
    tokens: Annotated[int, typer.Option(min=2, help="Number of tokens in a piece.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Seed for drawing pieces.")] = 0,
    no_special_tokens: NoSpecialTokens = False,
    chat: Chat = False,
    dtype: Kept = Dtype.float32,
    target: Annotated[
        str | None,
        typer.Option(
            help="Token or class whose logit is compared; the mean loss of a language model's text if absent."
        ),
    ] = None,
    contrast: Contrast = None,
    against: Against = None,
    position: Position = None,
    largest: Annotated[
        int, typer.Option(min=0, help="Number of parameters, those with the largest parts, that are run again.")
    ] = 10,
    plot: Plot = None,
    save: Save = None,
    csv: Csv = None,
    json_file: Json = None,
) -> None:
    """Show exactly which weights make a model and its reference give different numbers on a text, `A − B`."""
    with one_line_errors():
        if bits is None and reference is None and text is not None and (old_text is not None or files):
            renamed_order = "duat diff FIRST SECOND is written duat diff SECOND --reference FIRST now"
            typer.echo(f"{renamed_order}; the old order goes with the next release", err=True)
            model, text, old_text, reference = text, old_text, None, model
        if old_text is not None:
            raise BadText("give one MODEL and one TEXT: the model that is subtracted is --reference")
        if (bits is None) == (reference is None):
            raise BadText("give the --reference that MODEL is compared with, or --bits for MODEL rounded; one of them")
        check_options((text, target, contrast, against), plot, json_file, save, csv)
        if (text is None) == (not files):
            raise BadText("give a TEXT, or files with --text")
        if budget is not None:
            about = {"--target": target, "--contrast": contrast, "--against": against, "--position": position}
            if bits is None or not files:
                raise BadText("--budget is spent by the loss of text, and judged on fresh text: give --bits and --text")
            if given := [name for name, option in about.items() if option is not None]:
                raise BadText(f"--budget is spent by the loss of text: leave {', '.join(given)} out")
        start_jax(float64=dtype is Dtype.float64)
        import numpy as np

        import duat_jax as duat
        from duat_jax.display.terminal import render
        from duat_jax.evaluation.running_text import read_texts, stream, windows
        from duat_jax.inputs.request import check
        from duat_jax.models.encoding import encode
        from duat_jax.models.loader import skeleton
        from duat_jax.weights.budget import render as render_budget
        from duat_jax.weights.budget import require_budget, spend
        from duat_jax.weights.filled import is_pruned
        from duat_jax.weights.rounded import rounded
        from duat_jax.weights.validation import require_alike, untied_alike

        if bits is not None and budget is not None:
            require_budget(bits, budget)
        names = (model, reference) if reference is not None else (f"{model} in {bits} bits", model)
        paths = [None if name == EMBEDDED else Path(name) for name in (model, reference or model)]
        config, of_reference = map(duat.load_config, paths)
        if config.image is not None:
            raise BadText(f"a {config.family} model reads images: this command reads texts")
        if budget is not None and config.head.kind != "next token":
            raise BadText(f"--budget judges by the loss of the next token, which this {config.family} model has not")
        if not (is_pruned(config, of_reference) or is_pruned(of_reference, config)):
            require_alike(*untied_alike(*(skeleton(each, dtype.value) for each in (of_reference, config))))
        tokenizers = [duat.load_tokenizer(path, add_special_tokens=not no_special_tokens, chat=chat) for path in paths]
        tokenizer = tokenizers[0]
        texts = [text] if text is not None else read_texts(files or [])

        def encoded(tokenizer: "Tokenizer") -> tuple[Any, ...]:
            """Return what is given, by a tokenizer: the texts, the one to compare with, target and contrast."""
            other = None if against is None else encode(tokenizer, against, "the text to compare with")
            outputs = {"target": target, "contrast": contrast}
            read = (read_output(config, tokenizer, given, label) for label, given in outputs.items())
            return stream(tokenizer, texts).tolist(), other, *read

        read, by_reference = map(encoded, tokenizers)
        if read != by_reference:
            raise BadText(
                "the tokenizers of the two models give different tokens, so that they read two inputs: compare models"
                " that share a tokenizer"
            )
        ids, other_ids, *outputs = read
        inputs: Any = ids
        if files:
            drawn = windows(np.array(ids, np.int32), pieces if budget is None else 2 * pieces, tokens, seed=seed)
            inputs, fresh = drawn[:pieces], drawn[pieces:]
        asked: dict[str, Any] = {
            "contrast": outputs[1],
            "against": other_ids,
            "position": position,
            "tokenizer": tokenizer,
        }
        check(config, inputs, outputs[0], **asked)
        models = []
        for path in paths if bits is None else paths[:1]:
            with loading_bar() as progress:
                models.append(duat.load(path, dtype=dtype.value, progress=progress))
        after, before = models if bits is None else (rounded(models[0], bits), models[0])
        with progress_bar("Comparing", "runs") as progress:
            found = duat.diff(after, inputs, outputs[0], reference=before, largest=largest, progress=progress, **asked)
        for completeness in found.completeness:
            require_no_failure("the sum over the weights", completeness)
        spent: dict[str, Any] = {}
        if bits is not None and budget is not None:
            with progress_bar("Measuring", "losses") as progress:
                spent["budget"] = spend(before, found.parts, bits, budget, fresh, seed=seed, progress=progress)
        tables = (render(found.view(*names)), *(part for each in spent.values() for part in ("", render_budget(each))))
        content = to_json(found.as_dict(*names, **spent))
        notes = space_lines(config, tokenizer, {"--target": target, "--contrast": contrast}, ())
        files_written: dict[str, Any] = {"plot": plot, "json_file": json_file, "save": save, "table": csv}
        deliver(content, *notes, *tables, figure=found.plot, result=found, **files_written)
