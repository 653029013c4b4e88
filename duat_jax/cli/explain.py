"""The command `duat explain`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.options import Dtype, Json, Kept, Model, Plot
from duat_jax.cli.output import DoesNotHold, check_outputs, deliver, one_line_errors, to_json
from duat_jax.cli.progress import loading_bar
from duat_jax.errors import BadText

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from duat_jax.forms.completeness import Completeness
    from duat_jax.models.config import Config


class Carries(StrEnum):
    """What carries the neurons of a gated model."""

    gate = "gate"
    factor = "factor"
    halves = "halves"


class Baseline(StrEnum):
    """What can stand in a text's or an image's place."""

    mask = "mask"
    pad = "pad"
    mean = "mean"
    blur = "blur"


def _check_options(texts: tuple[str | None, ...], plot: Path | None, json_file: str | None) -> None:
    check_outputs(plot, json_file)
    for given in filter(None, texts):
        if not given.isascii() and given != given.encode(errors="ignore").decode():
            raise BadText(f"{given!r} is not UTF-8: give it in UTF-8")


def _require_holding(what: str, found: "Completeness") -> None:
    if found.verdict != "holds":
        raise DoesNotHold(
            f"{what} is not certified, its completeness {found.verdict}: value {float(found.value):.7g}, sum of all"
            f" parts {float(found.sum):.7g}, error {float(found.error):+.1e}, tolerance {float(found.tolerance):.1e},"
            f" largest part {float(found.largest):.1e} ({found.dtype})" + (f". {found.note}" if found.note else "")
        )


def _read_text(
    model: Path | None, config: "Config", text: str | None, pair: str | None, image: Path | None, others: list[str]
) -> "tuple[Tokenizer | None, Any, list[Any]]":
    """Return the tokenizer, what the model reads, and what it is contrasted with."""
    import duat_jax as duat
    from duat_jax.inputs.encoding import encode, encode_pair

    if config.image is not None:
        if image is None or text is not None or pair is not None:
            raise BadText(f"a {config.family} model reads images: give --image FILE in the place of texts")
        return None, duat.load_image(image, str(model)), [duat.load_image(file, str(model)) for file in others]
    if image is not None or text is None:
        raise BadText(f"a {config.family} model reads texts: give one" + ("" if image is None else " without --image"))
    tokenizer = duat.load_tokenizer(model)

    def encoded(text: str, what: str) -> Any:
        if pair is None:
            return encode(tokenizer, text, what)
        return encode_pair(tokenizer, text, pair, config)

    return tokenizer, encoded(text, "the text"), [encoded(other, "the other text") for other in others]


def _read_against(model: Path | None, config: "Config", tokenizer: "Tokenizer | None", against: str | None) -> Any:
    """Return the text or the image that an encoder's one is compared with."""
    import duat_jax as duat
    from duat_jax.inputs.encoding import encode

    if against is None:
        return None
    if tokenizer is None:
        return duat.load_image(against, str(model))
    return encode(tokenizer, against, "the text to compare with")


def _read_pairs(align: str | None) -> list[tuple[int, int]] | None:
    if align is None:
        return None
    try:
        return [(int(place), int(token)) for place, token in (pair.split(":") for pair in align.split(","))]
    except ValueError:
        raise BadText(f"--align {align!r} must be pairs of token indices, such as 0:0,1:2") from None


def _read_output(config: "Config", tokenizer: "Tokenizer | None", text: str | None, what: str) -> int | str | None:
    """Return the token or the class that a text names."""
    from duat_jax.inputs.encoding import encode_token

    if text is None or tokenizer is None or config.head.kind == "classes":
        # A class's number is short; what isn't one stays a name.
        return int(text) if text and text.isdecimal() and len(text) < 10 and text not in config.head.labels else text
    return encode_token(tokenizer, text, what)


def explain(
    text: Annotated[
        str | None, typer.Argument(help="The text that the model reads; [MASK] or <mask> is what it is to say.")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="The second text of a pair.")] = None,
    image: Annotated[Path | None, typer.Option(help="The image that a vision model reads in a text's place.")] = None,
    model: Model = None,
    head: Annotated[
        str | None,
        typer.Option(help="What is read out: 'next token', 'masked token', 'classes' or 'hidden'; as saved if absent."),
    ] = None,
    carries: Annotated[
        Carries | None, typer.Option(help="What carries a gated model's neurons in the collapse; halves if absent.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Token to explain, or class by name or number; the most probable one if absent."),
    ] = None,
    contrast: Annotated[str | None, typer.Option(help="Token or class whose logit is subtracted.")] = None,
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
    versus: Annotated[
        list[str] | None,
        typer.Option(
            help="Contrast with this text of as many tokens, or this image's file: the difference is split, layer by"
            " layer. Given more than once, the average."
        ),
    ] = None,
    baseline: Annotated[
        list[Baseline] | None,
        typer.Option(
            help="Contrast with a baseline: the mask, padding or the vocabulary's mean in every token's place, or of an"
            " image the blurred one or its mean. Given more than once, the average."
        ),
    ] = None,
    align: Annotated[
        str | None,
        typer.Option(
            help="Where --versus is of another length, which of its tokens stand in which places, such as 0:0,1:2."
        ),
    ] = None,
    position: Annotated[
        int | None,
        typer.Option(
            help="Token at which the output is read; negative from the end. If absent the last one, or the only mask."
        ),
    ] = None,
    dtype: Kept = Dtype.float32,
    top: Annotated[int, typer.Option(min=1, help="How many of the biggest terms to list, or heads and neurons.")] = 10,
    plot: Plot = None,
    json_file: Json = None,
) -> None:
    """Show one output of a model as a complete table of who contributed what, summing to it exactly.

    With --versus or --baseline, show why it is this here and that there.
    """
    with one_line_errors():
        others = versus or []
        baselines = [one.value for one in baseline or []]
        _check_options((text, pair, head, target, contrast, against, *others), plot, json_file)
        if log_probability and (contrast is not None or against is not None):
            raise BadText("--log-probability goes with --target alone: leave out --contrast and --against")
        if carries is not None and (others or baselines):
            raise BadText("--carries is what the collapse asks, and a contrast has none: leave it out")
        if align is not None and not others:
            raise BadText("--align says how --versus TEXT lies beside the text: give that too")

        start_jax(float64=dtype is Dtype.float64)
        import jax.numpy as jnp
        import numpy as np

        import duat_jax as duat
        from duat_jax.inputs.baselines import check_contrast
        from duat_jax.inputs.request import check
        from duat_jax.interpret.contrast import table as contrast_table
        from duat_jax.interpret.explain import table
        from duat_jax.models.validation import require_gated

        config, gauge = duat.load_config(model, head=head), None if carries is None else carries.value
        require_gated(config, gauge)
        tokenizer, given, read = _read_text(model, config, text, pair, image, others)
        token = _read_output(config, tokenizer, target, "target")
        asked: dict[str, Any] = {
            "target": token,
            "against": _read_against(model, config, tokenizer, against),
            "position": position,
        }
        if log_probability:
            asked = {"target": duat.LogProbability(token, position=position)}
        elif contrast is not None:
            asked["contrast"] = _read_output(config, tokenizer, contrast, "contrast")
        asked["tokenizer"] = tokenizer
        contrasted = [*read, *baselines]
        if contrasted:
            asked["alignment"] = _read_pairs(align)
            check_contrast(config, given, contrasted, **asked)
        else:
            check(config, given, **asked)
        with loading_bar() as progress:
            loaded_model = duat.load(model, dtype=jnp.dtype(dtype.value), head=head, progress=progress)
        with np.errstate(all="ignore"):
            if contrasted:
                found = duat.contrast(loaded_model, given, contrasted, **asked)
                _require_holding("the contrast", found.completeness)
                shown = contrast_table.render(found, top)
            else:
                found = duat.explain(loaded_model, given, carries=gauge, **asked)
                _require_holding("the table", found.completeness)
                _require_holding("the collapse", found.collapse_completeness)
                shown = table.render(found, top)
            name = "embedded" if model is None else str(model).encode(errors="replace").decode()
            content = to_json(found.as_dict(name, top))
        deliver(content, shown, figure=found.plot, plot=plot, json_file=json_file)
