"""The commands `duat intervene` and `duat steer`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.explain import check_options, pages_of
from duat_jax.cli.options import Chat, Csv, Dtype, Html, Json, Kept, Model, NoSpecialTokens, Save, renamed_option
from duat_jax.cli.output import deliver, one_line_errors, require_holding, space_lines, to_json
from duat_jax.cli.progress import loading_bar, working
from duat_jax.errors import BadText

if TYPE_CHECKING:
    from duat_jax.interpret.intervene.changes import Applied, Change
    from duat_jax.interpret.intervene.result import Intervention
    from duat_jax.models.transformer import Transformer

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
            " LAYER:UNITS@TOKENS; 'token 3 set mean', 'edge 5:3 2>7 set 0': LAYER:HEAD FROM>TO. 'set reference' sets"
            " to the values on --reference. Repeat for several."
        ),
    ],
    reference: Annotated[
        str | None, typer.Option(help="Another text of as many tokens, for changes that 'set reference' (patching).")
    ] = None,
    versus: Annotated[str | None, typer.Option(hidden=True, help="The old name of --reference.")] = None,
    model: Model = None,
    no_special_tokens: NoSpecialTokens = False,
    chat: Chat = False,
    target: Target = None,
    contrast: Contrast = None,
    position: Position = None,
    dtype: Kept = Dtype.float32,
    html: Html = None,
    save: Save = None,
    csv: Csv = None,
    json_file: Json = None,
) -> None:
    """Turn heads or neurons off, scale or patch them, run the model again, and split what changes over the changes."""
    with one_line_errors():
        reference = renamed_option("--versus", versus, "--reference", reference)
        check_options((text, target, contrast, reference), None, json_file, save, csv, html)
        from duat_jax.interpret.intervene.written import parse_changes, sets_other

        changes = parse_changes(change, "" if reference is None else reference)
        if (reference is None) == any(map(sets_other, changes)):
            raise BadText("--change '… set reference' sets values to those on --reference TEXT: give both, or neither")
        start_jax(float64=dtype is Dtype.float64)
        about = _about(model, contrast, position, not no_special_tokens, chat)
        loaded, applied, result = _ask(model, dtype, text, changes, target, about)
        if reference is not None:
            import duat_jax as duat
            from duat_jax.interpret.intervene.patching import beside_contrast

            with working("Contrasting"):
                split = duat.contrast(loaded, text, reference, target, **about)
            result = beside_contrast(result, split, applied)
        _deliver(model, result, target, about, html, json_file=json_file, save=save, table=csv)


def steer(
    text: Text,
    towards: Annotated[str, typer.Option(help="A text that the model's stream is pushed towards.")],
    away: Annotated[str, typer.Option(help="A text that it is pushed away from.")],
    layers: Annotated[int, typer.Option(min=0, help="After how many layers the direction is added.")],
    strength: Annotated[float, typer.Option(help="How often the direction is added.")] = 1.0,
    model: Model = None,
    no_special_tokens: NoSpecialTokens = False,
    chat: Chat = False,
    target: Target = None,
    contrast: Contrast = None,
    position: Position = None,
    dtype: Kept = Dtype.float32,
    html: Html = None,
    save: Save = None,
    csv: Csv = None,
    json_file: Json = None,
) -> None:
    """Add a direction to the residual stream at every token: from one text's last token to that of another."""
    with one_line_errors():
        check_options((text, target, contrast, towards, away), None, json_file, save, csv, html)
        start_jax(float64=dtype is Dtype.float64)
        from duat_jax.edits import Between, Stream

        about = _about(model, contrast, position, not no_special_tokens, chat)
        changes = [Stream(layers).steer(Between(towards, away, strength))]
        *_, result = _ask(model, dtype, text, changes, target, about)
        _deliver(model, result, target, about, html, json_file=json_file, save=save, table=csv)


def _about(
    path: Path | None, contrast: str | None, position: int | None, special_tokens: bool, chat: bool
) -> dict[str, Any]:
    import duat_jax as duat

    return {
        "contrast": contrast,
        "position": position,
        "tokenizer": duat.load_tokenizer(path, add_special_tokens=special_tokens, chat=chat),
    }


def _ask(
    path: Path | None, dtype: Dtype, text: str, changes: "Sequence[Change]", target: str | None, about: dict[str, Any]
) -> "tuple[Transformer, list[Applied], Intervention]":
    """Check the changes, load the model and run it with them; return the model, the changes and the result."""
    import duat_jax as duat
    from duat_jax.interpret.intervene.compute import check

    config = duat.load_config(path)
    if config.marks is None:  # those of a model by its PyTorch code are known once it is loaded
        check(config, text, changes, target, **about)
    with loading_bar() as progress:
        loaded = duat.load(path, dtype=dtype.value, progress=progress)
    *_, applied = check(loaded.config, text, changes, target, **about)
    with working("Running the model with the changes"):
        return loaded, applied, duat.intervene(loaded, text, changes, target, **about)


def _deliver(
    path: Path | None,
    result: "Intervention",
    target: str | None,
    about: dict[str, Any],
    html: Path | None,
    **files: Any,
) -> None:
    """Print the result, and write its files."""
    import duat_jax as duat

    name = "embedded" if path is None else str(path).encode(errors="replace").decode()
    if result.reaches:
        require_holding("the secant's column", result.completeness)
    tokens = {"--target": target, "--contrast": about["contrast"]}
    notes = space_lines(duat.load_config(path), about["tokenizer"], tokens, result.predictions)
    deliver(
        to_json(result.as_dict(name)),
        *notes,
        result.table(),
        result=result,
        texts=pages_of(result, html),
        **files,
    )
