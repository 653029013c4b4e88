"""The commands `duat intervene` and `duat steer`."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.explain import check_options
from duat_jax.cli.options import Dtype, Json, Kept, Model
from duat_jax.cli.output import deliver, one_line_errors, require_holding, to_json
from duat_jax.cli.progress import loading_bar, working
from duat_jax.errors import BadText

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from duat_jax.interpret.intervene.changes import Change
    from duat_jax.models.config import Config
    from duat_jax.models.transformer import Transformer

CHANGE = re.compile(
    r"(?P<kind>neuron|head|stream)s? (?P<layer>\d+)(?::(?P<units>[\d,]+))?(?:@(?P<tokens>-?\d+(?:,-?\d+)*))?"
    r" (?P<verb>set|scale) (?P<value>-?\d+(?:\.\d+)?)"
)
"""A change: what, in which layer, which units, at which tokens, what is done, and with which number."""


def _changes(written: list[str]) -> "list[Change]":
    """Return the changes that are written, or raise an error that names all that are none."""
    changes, problems = [], []
    for each in written:
        try:
            changes.append(_change(each))
        except BadText as error:
            problems.append(str(error))
    if problems:
        raise BadText("; ".join(problems))
    return changes


def _change(written: str) -> "Change":
    from duat_jax import edits

    if not (match := CHANGE.fullmatch(" ".join(written.split()))) or (match["kind"] == "stream") == bool(
        match["units"]
    ):
        raise BadText(
            f"{written!r} is no change: write 'neuron 3:17 set 0', 'heads 5:3,4@-1 scale 0.5' or 'stream 6@2 set 0',"
            " which is LAYER:UNITS@TOKENS; without @TOKENS every token is changed"
        )
    layer, tokens = int(match["layer"]), _numbers(match["tokens"])
    if match["kind"] == "stream":
        place: Any = edits.Stream(layer, tokens=tokens)
    else:
        kinds = {"neuron": edits.Neurons, "head": edits.Heads}
        place = kinds[match["kind"]](layer, _numbers(match["units"]), tokens=tokens)
    return getattr(place, match["verb"])(float(match["value"]))


def _numbers(written: str | None) -> list[int] | None:
    return None if written is None else [int(number) for number in written.split(",") if number]


def _run(
    model: Path | None,
    dtype: Dtype,
    text: str,
    target: str | None,
    contrast: str | None,
    position: int | None,
    json_file: str | None,
    changes: "Callable[[], list[Change]]",
    check_more: "Callable[[Config, Tokenizer], None]" = lambda config, tokenizer: None,
    made: "Callable[[Transformer, Tokenizer, list[Change]], Any]" = lambda model, tokenizer, changes: changes,
) -> None:
    """Check everything, load a model, make the changes, and deliver the result."""
    check_options((text, target, contrast), None, json_file)
    asked = changes()
    start_jax(float64=dtype is Dtype.float64)
    import duat_jax as duat
    from duat_jax.interpret.intervene.compute import check
    from duat_jax.interpret.intervene.table import render

    config, tokenizer = duat.load_config(model), duat.load_tokenizer(model)
    check_more(config, tokenizer)
    given: dict[str, Any] = {"contrast": contrast, "position": position, "tokenizer": tokenizer}
    check(config, text, asked, target, **given)
    with loading_bar() as progress:
        loaded = duat.load(model, dtype=dtype.value, progress=progress)
    with working("Running the model with the changes"):
        result = duat.intervene(loaded, text, made(loaded, tokenizer, asked), target, **given)
    name = "embedded" if model is None else str(model).encode(errors="replace").decode()
    if result.difference:
        require_holding("the secant's column", result.completeness)
    deliver(to_json(result.as_dict(name)), render(result), json_file=json_file)


Text = Annotated[str, typer.Argument(help="The text that the model reads.")]
Target = Annotated[str | None, typer.Option(help="The token that is read; the most probable one if absent.")]
Contrast = Annotated[str | None, typer.Option(help="The token whose logit is subtracted.")]
Position = Annotated[int | None, typer.Option(help="The token at which the logit is read; the last one if absent.")]


def intervene(
    text: Text,
    change: Annotated[
        list[str],
        typer.Option(
            help="What is changed, such as 'head 5:3 set 0', 'neurons 3:17,20@-1 scale 2' or 'stream 6@2 set 0':"
            " LAYER:UNITS@TOKENS. Repeat for several."
        ),
    ],
    model: Model = None,
    target: Target = None,
    contrast: Contrast = None,
    position: Position = None,
    dtype: Kept = Dtype.float32,
    json_file: Json = None,
) -> None:
    """Turn heads or neurons off, or scale them, run the model again, and split what changes over the changes."""
    with one_line_errors():
        _run(model, dtype, text, target, contrast, position, json_file, lambda: _changes(change))


def steer(
    text: Text,
    towards: Annotated[str, typer.Option(help="A text that the model's stream is pushed towards.")],
    away: Annotated[str, typer.Option(help="A text that it is pushed away from.")],
    layers: Annotated[int, typer.Option(min=0, help="After how many layers the direction is added.")],
    strength: Annotated[float, typer.Option(help="How often the direction is added.")] = 1.0,
    model: Model = None,
    target: Target = None,
    contrast: Contrast = None,
    position: Position = None,
    dtype: Kept = Dtype.float32,
    json_file: Json = None,
) -> None:
    """Add a direction to the residual stream at every token: from one text's last token to that of another."""
    with one_line_errors():
        check_options((towards, away), None, json_file)

        def nothing_yet() -> list[Any]:
            from duat_jax.edits import Stream

            if not math.isfinite(strength):
                raise BadText(f"--strength {strength}: give a number")
            return [Stream(layers).steer(0.0)]

        def check_texts(config: Any, tokenizer: Any) -> None:
            from duat_jax.inputs.request import check_one

            problems = []
            if layers > config.layers:
                problems.append(f"--layers {layers} is more than the model's {config.layers}")
            for option, given in (("--towards", towards), ("--away", away)):
                try:
                    check_one(config, given, tokenizer=tokenizer)
                except BadText as error:
                    problems.append(f"{option}: {error}")
            if problems:
                raise BadText("; ".join(problems))

        def direction(model: Any, tokenizer: Any, changes: Any) -> Any:
            import jax
            import numpy as np

            from duat_jax.edits import Stream
            from duat_jax.inputs.request import check_one
            from duat_jax.interpret.pipeline import forward_from

            def last(text: str) -> Any:
                inputs, _ = check_one(model.config, text, tokenizer=tokenizer)
                states = forward_from(model, model.embed(inputs.given), jax.numpy.asarray(inputs.real), layers)
                return states.at(layers)[-1]

            with jax.default_matmul_precision("highest"):
                change = np.asarray(last(towards) - last(away), np.float64)
            return Stream(layers).steer(strength * change)

        _run(model, dtype, text, target, contrast, position, json_file, nothing_yet, check_texts, direction)
