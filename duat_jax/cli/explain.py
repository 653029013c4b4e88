"""The command `duat explain`."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.options import (
    Chat,
    Contrast,
    Csv,
    Dtype,
    Html,
    Json,
    Kept,
    Model,
    NoSpecialTokens,
    Plot,
    PositionOrMask,
    Save,
    Survey,
    renamed_option,
)
from duat_jax.cli.output import check_outputs, deliver, one_line_errors, require_holding, space_lines, to_json
from duat_jax.cli.progress import loading_bar, working
from duat_jax.errors import BadText

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from duat_jax.display.examples import Examples
    from duat_jax.display.result import Displayed
    from duat_jax.models.config import Config


class GateRule(StrEnum):
    """The factor of a gated model's neurons through which the collapse flows."""

    gate = "gate"
    factor = "factor"
    halves = "halves"


class Baseline(StrEnum):
    """Baselines for a text or an image."""

    mask = "mask"
    pad = "pad"
    mean = "mean"
    blur = "blur"


def check_options(
    texts: tuple[str | None, ...],
    plot: Path | None,
    json_file: str | None,
    save: Path | None = None,
    table: Path | None = None,
    html: Path | None = None,
    others: Iterable[Path | None] = (),
) -> None:
    """Validate what several commands take: files that can be written, and texts in UTF-8.

    Args:
        texts: the texts, where they are given.
        plot: file of the picture; none if absent.
        json_file: file of the JSON, or `-`; none if absent.
        save: file of the result; none if absent.
        table: file of the result's table; none if absent.
        html: file of the page; none if absent.
        others: further files; none for what is absent.

    Raises:
        BadText: naming what is wrong and what to do.
    """
    check_outputs(plot, json_file, others=[html, *others], save=save, table=table)
    for text in filter(None, texts):
        if not text.isascii() and text != text.encode(errors="ignore").decode():
            raise BadText(f"{text!r} is not UTF-8: give it in UTF-8")


def pages_of(result: "Displayed", html: Path | None, examples: "Examples | None" = None) -> dict[Path, str]:
    """Return the page of a result by its file, if there is one, and say how large it is going to be.

    Args:
        result: the result.
        html: the file.
        examples: of the model, if there are some.
    """
    return say_sizes({} if html is None else {html: result.to_html(examples=examples)})


def examples_of(config: "Config", model: Path | None, survey: Path | None) -> "Examples | None":
    """Return the texts in which each neuron is strongest; of a model without a survey none.

    Args:
        config: the model's parts.
        model: its path; the embedded model, which has some, if absent.
        survey: the directory of a survey.

    Raises:
        BadText: if the directory has none, or those of a model of another shape.
    """
    from duat_jax.display.examples import read_examples

    if survey is None and model is not None:
        return None
    found = read_examples(survey)
    if not found.fit(config):
        raise BadText(f"--survey {survey} is of a model of another family, or with other layers or neurons")
    return found


def say_sizes(texts: dict[Path, str]) -> dict[Path, str]:
    """Say on standard error how large files are going to be.

    Args:
        texts: their contents.

    Returns:
        The same.
    """
    for file, text in texts.items():
        typer.echo(f"{file} is going to have {len(text.encode()) / 1e6:.2f} MB", err=True)
    return texts


def _read_text(
    model: Path | None,
    config: "Config",
    text: str | None,
    pair: str | None,
    image: Path | None,
    contrasts: list[str],
    special_tokens: bool,
    chat: bool,
) -> "tuple[Tokenizer | None, Any, list[Any]]":
    """Return the tokenizer, the inputs of the model, and the inputs to contrast with."""
    import duat_jax as duat
    from duat_jax.inputs.model_inputs import encode_pair
    from duat_jax.models.encoding import encode

    if config.image is not None:
        if image is None or text is not None or pair is not None:
            raise BadText(f"a {config.family} model reads images: give --image FILE instead of texts")
        return None, duat.load_image(image, str(model)), [duat.load_image(file, str(model)) for file in contrasts]
    if image is not None or text is None:
        raise BadText(f"a {config.family} model reads texts: give one" + ("" if image is None else " without --image"))
    if pair is not None and config.head.kind == "next token":
        raise BadText("a language model reads one text, and no pair: leave --pair out")
    if pair is not None and chat:
        raise BadText("a pair of texts is no chat: leave --chat or --pair out")
    tokenizer = duat.load_tokenizer(model, add_special_tokens=special_tokens, chat=chat)

    def encoded(text: str, label: str) -> Any:
        if pair is None:
            return encode(tokenizer, text, label)
        return encode_pair(tokenizer, text, pair, config)

    return tokenizer, encoded(text, "the text"), [encoded(contrast, "the other text") for contrast in contrasts]


def _read_against(model: Path | None, config: "Config", tokenizer: "Tokenizer | None", against: str | None) -> Any:
    """Return the text or the image to compare an encoder's input with."""
    import duat_jax as duat
    from duat_jax.models.encoding import encode

    if against is None:
        return None
    if tokenizer is None:
        return duat.load_image(against, str(model))
    return encode(tokenizer, against, "the text to compare with")


def read_output(config: "Config", tokenizer: "Tokenizer | None", text: str | None, label: str) -> int | str | None:
    """Return the token or the class that a text names.

    Args:
        config: the model's parts.
        tokenizer: its tokenizer; none of a model that reads images.
        text: a token, or a class's name or number; the most probable if absent.
        label: what it is, for the message.

    Raises:
        BadText: if it isn't one token.
    """
    from duat_jax.models.vocabulary.vocabulary import find_token

    if text is None or tokenizer is None or config.head.kind == "classes":
        return text
    return find_token(tokenizer, text, label)


def explain(
    text: Annotated[
        str | None, typer.Argument(help="The text that the model reads; [MASK] or <mask> marks the token to predict.")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="The second text of a pair.")] = None,
    image: Annotated[Path | None, typer.Option(help="The image that a vision model reads instead of a text.")] = None,
    model: Model = None,
    no_special_tokens: NoSpecialTokens = False,
    chat: Chat = False,
    head: Annotated[
        str | None,
        typer.Option(help="The read-out: 'next token', 'masked token', 'classes' or 'hidden'; as saved if absent."),
    ] = None,
    gate_rule: Annotated[
        GateRule | None,
        typer.Option(help="The factor of a gated model's neurons through which the collapse flows; halves if absent."),
    ] = None,
    carries: Annotated[GateRule | None, typer.Option(hidden=True, help="The old name of --gate-rule.")] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Token to explain, or class by name or number; the most probable if absent."),
    ] = None,
    contrast: Contrast = None,
    log_probability: Annotated[
        bool,
        typer.Option(
            "--log-probability",
            help="The log-probability instead of the logit; minus the entropy is a part of its own.",
        ),
    ] = False,
    against: Annotated[
        str | None, typer.Option(help="For encoders: the text to compare with, or the image's file.")
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            help="Contrast with this text of as many tokens, or this image's file: the difference is split, layer by"
            " layer. Repeat for an average."
        ),
    ] = None,
    versus: Annotated[list[str] | None, typer.Option(hidden=True, help="The old name of --reference.")] = None,
    baseline: Annotated[
        list[Baseline] | None,
        typer.Option(
            help="Contrast with a baseline: the mask, padding or the vocabulary's mean at every token but special ones,"
            " or for an image its blurred version or its mean. Repeat for an average."
        ),
    ] = None,
    align: Annotated[
        str | None,
        typer.Option(
            help="For a --reference of another length, pairs of token indices in the text and in it, such as 0:0,1:2."
        ),
    ] = None,
    position: PositionOrMask = None,
    dtype: Kept = Dtype.float32,
    top: Annotated[int, typer.Option(min=1, help="Number of the largest terms, or heads and neurons, to list.")] = 10,
    plot: Plot = None,
    html: Html = None,
    survey: Survey = None,
    save: Save = None,
    csv: Csv = None,
    json_file: Json = None,
) -> None:
    """Show one output of a model as a complete table of contributions, which sum to it exactly.

    With --reference or --baseline, split its difference from that input, `A − B`.
    """
    with one_line_errors():
        contrast_texts = renamed_option("--versus", versus, "--reference", reference) or []
        baselines = baseline or []
        given = text, pair, head, target, contrast, against, *contrast_texts
        check_options(given, plot, json_file, save, csv, html)
        if log_probability and (contrast is not None or against is not None):
            raise BadText("--log-probability can only be combined with --target: leave out --contrast and --against")
        gate_rule = renamed_option("--carries", carries, "--gate-rule", gate_rule)
        if gate_rule is not None and (contrast_texts or baselines):
            raise BadText("--gate-rule is for the collapse, and a contrast has none: leave it out")
        if align is not None and not contrast_texts:
            raise BadText("--align places the tokens of --reference TEXT: give that too")

        start_jax(float64=dtype is Dtype.float64)
        import jax.numpy as jnp
        import numpy as np

        import duat_jax as duat
        from duat_jax.display.examples import table as strongest
        from duat_jax.inputs.baseline_kinds import KINDS
        from duat_jax.inputs.baselines import check_contrast, read_pairs
        from duat_jax.inputs.request import check
        from duat_jax.interpret.memory import warn_of_memory
        from duat_jax.models.validation import require_gated

        config, gauge = duat.load_config(model, head=head), None if gate_rule is None else gate_rule.value
        require_gated(config, gauge)
        examples = examples_of(config, model, survey)
        tokenizer, inputs, contrast_inputs = _read_text(
            model, config, text, pair, image, contrast_texts, not no_special_tokens, chat
        )
        token = read_output(config, tokenizer, target, "target")
        arguments: dict[str, Any] = {
            "target": token,
            "against": _read_against(model, config, tokenizer, against),
            "position": position,
        }
        if log_probability:
            arguments = {"target": duat.targets.LogProbability(token, position=position)}
        elif contrast is not None:
            arguments["contrast"] = read_output(config, tokenizer, contrast, "contrast")
        arguments["tokenizer"] = tokenizer
        contrasted = [*contrast_inputs, *(KINDS[choice.value]() for choice in baselines)]
        if contrasted:
            arguments["alignment"] = None if align is None else read_pairs(align, "--align")
            checked = check_contrast(config, inputs, contrasted, **arguments).inputs
        else:
            (checked,) = check(config, inputs, **arguments).inputs
        warn_of_memory("contrast" if contrasted else "explain", config, len(checked.real), dtype.value)
        with loading_bar() as progress:
            loaded_model = duat.load(model, dtype=jnp.dtype(dtype.value), head=head, progress=progress)
        with np.errstate(all="ignore"):
            if contrasted:
                with working("Contrasting"):
                    result = duat.contrast(loaded_model, inputs, contrasted, **arguments)
                require_holding("the contrast", result.completeness)
                neurons = result.top_neurons(top)
            else:
                with working("Explaining"):
                    result = duat.explain(loaded_model, inputs, gate_rule=gauge, **arguments)
                require_holding("the table", result.completeness)
                require_holding("the collapse", result.collapse_completeness)
                neurons = result.top(top)
            name = "embedded" if model is None else str(model).encode(errors="replace").decode()
            content = to_json(result.as_dict(name, top))
            texts = pages_of(result, html, examples)
        files: dict[str, Any] = {"plot": plot, "json_file": json_file, "save": save, "table": csv}
        tokens = {"--target": target, "--contrast": contrast}
        notes = space_lines(config, tokenizer, tokens, result.predictions)
        named = [] if examples is None else strongest(neurons, examples)
        deliver(content, *notes, result.table(top), *named, figure=result.plot, texts=texts, result=result, **files)
