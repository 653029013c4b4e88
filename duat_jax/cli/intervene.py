"""The commands `duat intervene` and `duat steer`."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.explain import TOKENS, check_options
from duat_jax.cli.leading_space import space_lines
from duat_jax.cli.options import Csv, Dtype, Json, Kept, Model, Save
from duat_jax.cli.output import deliver, one_line_errors, require_holding, to_json
from duat_jax.cli.progress import loading_bar, working
from duat_jax.errors import BadText

if TYPE_CHECKING:
    from duat_jax.interpret.intervene.changes import Change, Place
    from duat_jax.models.transformer import Transformer

CHANGE = re.compile(
    r"(?P<kind>neuron|head|stream)s? (?P<layer>\d+)(?::(?P<units>[\d,]+))?(?:@(?P<tokens>-?\d+(?:,-?\d+)*))?"
    r" (?:(?P<verb>set|scale) (?P<value>-?\d+(?:\.\d+)?)|set other)"
)
"""A change: what, in which layer, which units, at which tokens, what is done, and with which number."""


class _Written(NamedTuple):
    """A change as it is written.

    Args:
        place: what is changed.
        verb: the method of the place.
        value: its argument; `None` for the values on the other text.
    """

    place: "Place"
    verb: str
    value: float | None

    def change(self, other: Any = 0.0) -> "Change":
        """Return the change, with the values on the other text where it sets these."""
        return getattr(self.place, self.verb)(other if self.value is None else self.value)


def _changes(written: list[str]) -> list[_Written]:
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


def _change(written: str) -> _Written:
    from duat_jax import edits

    if not (match := CHANGE.fullmatch(" ".join(written.split()))) or (match["kind"] == "stream") == bool(
        match["units"]
    ):
        raise BadText(
            f"{written!r} is no change: write 'neuron 3:17 set 0', 'heads 5:3,4@-1 scale 0.5', 'stream 6@2 set 0' or"
            " 'head 5:3 set other', which is LAYER:UNITS@TOKENS; without @TOKENS every token is changed"
        )
    layer, tokens = int(match["layer"]), _numbers(match["tokens"])
    if match["kind"] == "stream":
        place: Any = edits.Stream(layer, tokens=tokens)
    else:
        kinds = {"neuron": edits.Neurons, "head": edits.Heads}
        place = kinds[match["kind"]](layer, _numbers(match["units"]), tokens=tokens)
    return _Written(place, match["verb"] or "set", None if match["value"] is None else float(match["value"]))


def _numbers(written: str | None) -> list[int] | None:
    return None if written is None else [int(number) for number in written.split(",") if number]


class _Question(NamedTuple):
    """What both commands ask: a number of a model on a text.

    Args:
        path: the model's checkpoint; the embedded model if absent.
        dtype: of its parameters.
        text: what it reads.
        target: the token; the most probable one if absent.
        about: the token whose logit is subtracted, the position, and the tokenizer.
    """

    path: Path | None
    dtype: Dtype
    text: str
    target: str | None
    about: dict[str, Any]

    def load(self) -> "Transformer":
        """Return the model."""
        import duat_jax as duat

        with loading_bar() as progress:
            return duat.load(self.path, dtype=self.dtype.value, progress=progress)

    def deliver(
        self, model: "Transformer", changes: "list[Change]", parts: "Sequence[float | None] | None" = None, **files: Any
    ) -> None:
        """Run the model with the changes, and deliver the result.

        Args:
            model: the model.
            changes: the changes.
            parts: of each change what a contrast predicts, or `None`; a column of the table if there are any.
            files: files of the result.
        """
        import duat_jax as duat
        from duat_jax.interpret.intervene.table import render

        with working("Running the model with the changes"):
            result = duat.intervene(model, self.text, changes, self.target, **self.about)
        if parts is not None:
            effects = (each._replace(contrast=part) for each, part in zip(result.effects, parts, strict=True))
            result = replace(result, effects=tuple(effects))
        name = "embedded" if self.path is None else str(self.path).encode(errors="replace").decode()
        if result.difference:
            require_holding("the secant's column", result.completeness)
        tokens = {"--target": self.target, "--contrast": self.about["contrast"]}
        notes = space_lines(self.about["tokenizer"], tokens) if model.config.head.kind in TOKENS else []
        deliver(to_json(result.as_dict(name)), *notes, render(result), result=result, **files)


def _check_other_text(changes: list[_Written], versus: str | None) -> None:
    if (versus is None) == any(each.value is None for each in changes):
        raise BadText("--change '… set other' sets values to those on --versus TEXT: give both, or neither")


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
            " LAYER:UNITS@TOKENS. 'set other' sets to the values on --versus. Repeat for several."
        ),
    ],
    versus: Annotated[
        str | None, typer.Option(help="Another text of as many tokens, for changes that 'set other' (patching).")
    ] = None,
    model: Model = None,
    target: Target = None,
    contrast: Contrast = None,
    position: Position = None,
    dtype: Kept = Dtype.float32,
    save: Save = None,
    csv: Csv = None,
    json_file: Json = None,
) -> None:
    """Turn heads or neurons off, scale or patch them, run the model again, and split what changes over the changes."""
    with one_line_errors():
        check_options((text, target, contrast, versus), None, json_file, save, csv)
        written = _changes(change)
        _check_other_text(written, versus)
        start_jax(float64=dtype is Dtype.float64)
        import duat_jax as duat
        from duat_jax.interpret.intervene.compute import check
        from duat_jax.interpret.intervene.patching import check_patching, parts_of, values_of

        config, tokenizer = duat.load_config(model), duat.load_tokenizer(model)
        about: dict[str, Any] = {"contrast": contrast, "position": position, "tokenizer": tokenizer}
        inputs, _, applied = check(config, text, [each.change() for each in written], target, **about)
        question = _Question(model, dtype, text, target, about)
        files: dict[str, Any] = {"json_file": json_file, "save": save, "table": csv}
        if versus is None:
            question.deliver(question.load(), [each.change() for each in written], **files)
            return
        other = check_patching(config, inputs, versus, target, **about)
        loaded = question.load()
        values = values_of(loaded, other, applied)
        with working("Contrasting"):
            split = duat.contrast(loaded, text, other.given, target, **about)
        parts = [
            part if each.value is None else None for part, each in zip(parts_of(split, applied), written, strict=True)
        ]
        changes = [each.change(value) for each, value in zip(written, values, strict=True)]
        question.deliver(loaded, changes, parts, **files)


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
    save: Save = None,
    csv: Csv = None,
    json_file: Json = None,
) -> None:
    """Add a direction to the residual stream at every token: from one text's last token to that of another."""
    with one_line_errors():
        check_options((text, target, contrast, towards, away), None, json_file, save, csv)
        if not math.isfinite(strength):
            raise BadText(f"--strength {strength}: give a number")
        start_jax(float64=dtype is Dtype.float64)
        import numpy as np

        import duat_jax as duat
        from duat_jax.edits import Stream
        from duat_jax.interpret.intervene.compute import check
        from duat_jax.interpret.intervene.patching import values_of

        config, tokenizer = duat.load_config(model), duat.load_tokenizer(model)
        problems = [f"--layers {layers} is more than the model's {config.layers}"] if layers > config.layers else []
        last, texts = Stream(min(layers, config.layers), tokens=-1).set(0.0), []
        for option, given in (("--towards", towards), ("--away", away)):
            try:
                texts.append(check(config, given, last, tokenizer=tokenizer))
            except BadText as error:
                problems.append(f"{option}: {error}")
        if problems:
            raise BadText("; ".join(problems))
        about: dict[str, Any] = {"contrast": contrast, "position": position, "tokenizer": tokenizer}
        check(config, text, Stream(layers).steer(0.0), target, **about)
        question = _Question(model, dtype, text, target, about)
        loaded = question.load()
        plus, minus = (np.asarray(values_of(loaded, inputs, applied)[0][0], np.float64) for inputs, _, applied in texts)
        direction = Stream(layers).steer(strength * (plus - minus))
        question.deliver(loaded, [direction], json_file=json_file, save=save, table=csv)
