"""The command `duat explain`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duat_jax.cli.output import check_output, one_line_errors, write, write_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from duat_jax.explanation import Explanation


class Dtype(StrEnum):
    """What everything is computed in."""

    float32 = "float32"
    float64 = "float64"


def _token(tokenizer: "Tokenizer", text: str, what: str) -> int:
    """Return the token that a text is; a text that isn't one token may be a token's own name."""
    from duat_jax.errors import BadText

    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if len(ids) == 1:
        return ids[0]
    if (token := tokenizer.token_to_id(text)) is not None:
        return token
    pieces = ", ".join(repr(tokenizer.decode([i])) for i in ids) or "nothing"
    raise BadText(
        f"the {what} {text!r} is not one token but {len(ids)} ({pieces}): give one of its tokens, and mind"
        " that a leading space belongs to a token"
    )


def _ids(tokenizer: "Tokenizer", text: str, what: str) -> list[int]:
    from duat_jax.errors import BadText

    if not tokenizer.encode(text, add_special_tokens=False).ids:
        raise BadText(f"{what} is empty: give at least one token")
    return tokenizer.encode(text).ids


def _png(explanation: "Explanation") -> bytes:
    import io

    buffer = io.BytesIO()
    explanation.plot().savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def explain(
    text: Annotated[str, typer.Argument(help="The text that the model reads.")],
    model: Annotated[Path | None, typer.Option(help="Checkpoint directory; the embedded model if absent.")] = None,
    target: Annotated[str | None, typer.Option(help="Token to explain; the most probable one if absent.")] = None,
    contrast: Annotated[str | None, typer.Option(help="Token whose logit is subtracted.")] = None,
    against: Annotated[str | None, typer.Option(help="For encoders: the text to compare with.")] = None,
    position: Annotated[int, typer.Option(help="Token at which the output is read; negative from the end.")] = -1,
    dtype: Annotated[Dtype, typer.Option(help="What everything is computed in.")] = Dtype.float32,
    top: Annotated[int, typer.Option(min=1, help="How many of the biggest terms to list.")] = 10,
    plot: Annotated[Path | None, typer.Option(help="Write the layer × token picture to this PNG file.")] = None,
    json_file: Annotated[str | None, typer.Option("--json", help="Write JSON to this file, or - for output.")] = None,
) -> None:
    """Show one output of a model as a complete table of who contributed what, summing to it exactly."""
    with one_line_errors():
        from duat_jax.errors import BadText

        if json_file not in (None, "-"):
            check_output(Path(json_file))
        if plot is not None:
            check_output(plot)
            if plot.suffix.lower() != ".png":
                raise BadText(f"{plot} must end in .png")
        for given in filter(None, (text, target, contrast, against)):
            if not given.isascii() and given != given.encode(errors="ignore").decode():
                raise BadText(f"{given!r} is not UTF-8: give it in UTF-8")

        import jax

        if dtype is Dtype.float64:
            jax.config.update("jax_enable_x64", True)
        import jax.numpy as jnp

        import duat_jax as duat

        tokenizer = duat.load_tokenizer(model)
        explanation = duat.explain(
            duat.load(model, dtype=jnp.dtype(dtype.value)),
            jnp.array(_ids(tokenizer, text, "the text")),
            None if target is None else _token(tokenizer, target, "target"),
            contrast=None if contrast is None else _token(tokenizer, contrast, "contrast"),
            against=None if against is None else jnp.array(_ids(tokenizer, against, "the other text")),
            position=position,
            tokenizer=tokenizer,
        )
        if plot is not None:
            write(plot, _png(explanation))
        if json_file is not None:
            name = "embedded" if model is None else str(model)
            content = json.dumps(explanation.as_dict(name, top), indent=2, ensure_ascii=False) + "\n"
            write_json(json_file, content)
        if json_file != "-":
            from rich.console import Console

            from duat_jax.viz.table import WIDTH, render

            console = Console()
            console = console if console.is_terminal else Console(width=WIDTH)
            console.print(render(explanation, top))
