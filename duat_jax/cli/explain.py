"""The command `duat explain`."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duat_jax.cli.output import DoesNotHold, check_output, one_line_errors, to_json, write, write_json
from duat_jax.errors import BadText

if TYPE_CHECKING:
    from duat_jax.explanation.result import Explanation


class Dtype(StrEnum):
    """What everything is computed in."""

    float32 = "float32"
    float64 = "float64"


def _png(explanation: "Explanation") -> bytes:
    import io

    buffer = io.BytesIO()
    explanation.plot().savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def _check_options(texts: tuple[str | None, ...], plot: Path | None, json_file: str | None) -> None:
    written = [Path(json_file)] if json_file not in (None, "-") else []
    if plot is not None:
        if plot.suffix.lower() != ".png":
            raise BadText(f"{plot} must end in .png")
        written.append(plot)
    for path in written:
        check_output(path)
    if len(written) == 2 and written[0].resolve() == written[1].resolve():
        raise BadText(f"{plot} can't be the picture and the JSON: give two files")
    for given in filter(None, texts):
        if not given.isascii() and given != given.encode(errors="ignore").decode():
            raise BadText(f"{given!r} is not UTF-8: give it in UTF-8")


def _require_holding(explanation: "Explanation") -> None:
    for what, found in (
        ("the table", explanation.completeness),
        ("the collapse", explanation.collapse_completeness),
    ):
        if found.verdict != "holds":
            raise DoesNotHold(
                f"{what} is not certified, its completeness {found.verdict}: value {float(found.value):.7g}, sum of all"
                f" parts {float(found.sum):.7g}, error {float(found.error):+.1e}, tolerance"
                f" {float(found.tolerance):.1e}, largest part {float(found.largest):.1e} ({found.dtype})"
            )


def explain(
    text: Annotated[str, typer.Argument(help="The text that the model reads.")],
    model: Annotated[Path | None, typer.Option(help="Checkpoint directory; the embedded model if absent.")] = None,
    target: Annotated[str | None, typer.Option(help="Token to explain; the most probable one if absent.")] = None,
    contrast: Annotated[str | None, typer.Option(help="Token whose logit is subtracted.")] = None,
    log_probability: Annotated[
        bool,
        typer.Option(
            "--log-probability",
            help="The log-probability instead of the logit: the logit minus the mean logit, probabilities held.",
        ),
    ] = False,
    against: Annotated[str | None, typer.Option(help="For encoders: the text to compare with.")] = None,
    position: Annotated[int, typer.Option(help="Token at which the output is read; negative from the end.")] = -1,
    dtype: Annotated[Dtype, typer.Option(help="What everything is computed in.")] = Dtype.float32,
    top: Annotated[int, typer.Option(min=1, help="How many of the biggest terms to list.")] = 10,
    plot: Annotated[Path | None, typer.Option(help="Write the layer × token picture to this PNG file.")] = None,
    json_file: Annotated[str | None, typer.Option("--json", help="Write JSON to this file, or - for output.")] = None,
) -> None:
    """Show one output of a model as a complete table of who contributed what, summing to it exactly."""
    with one_line_errors():
        _check_options((text, target, contrast, against), plot, json_file)
        if log_probability and (contrast is not None or against is not None):
            raise BadText("--log-probability goes with --target alone: leave out --contrast and --against")

        # JAX 0.10.0 prints two lines of the compiler's for every program that it kept itself.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import jax

        if dtype is Dtype.float64:
            jax.config.update("jax_enable_x64", True)
        from duat_jax.cli.compiled import keep_compiled

        keep_compiled()
        import jax.numpy as jnp
        import numpy as np

        import duat_jax as duat
        from duat_jax.explanation import inputs

        tokenizer, config = duat.load_tokenizer(model), duat.load_config(model)
        ids = inputs.encode(tokenizer, text, "the text")
        token = None if target is None else inputs.encode_token(tokenizer, target, "target")
        other = None if contrast is None else inputs.encode_token(tokenizer, contrast, "contrast")
        other_ids = None if against is None else inputs.encode(tokenizer, against, "the other text")
        asked = duat.LogProbability(token, position=position) if log_probability else token
        given: dict[str, Any] = (
            {} if log_probability else {"contrast": other, "against": other_ids, "position": position}
        )
        inputs.check(config, ids, asked, **({"contrast": None, "against": None, "position": -1} | given))
        explanation = duat.explain(
            duat.load(model, dtype=jnp.dtype(dtype.value)), ids, asked, tokenizer=tokenizer, **given
        )
        with np.errstate(all="ignore"):
            _require_holding(explanation)
            name = "embedded" if model is None else str(model).encode(errors="replace").decode()
            content = to_json(explanation.as_dict(name, top))
        if plot is not None:
            write(plot, _png(explanation))
        if json_file is not None:
            write_json(json_file, content)
        if json_file != "-":
            from rich.console import Console

            from duat_jax.explanation.table import WIDTH, render

            console = Console()
            console = console if console.is_terminal else Console(width=WIDTH)
            console.print(render(explanation, top))
