"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class Dtype(StrEnum):
    """The dtype of the parameters; everything is computed in float32 at least."""

    float32 = "float32"
    float64 = "float64"
    bfloat16 = "bfloat16"
    float16 = "float16"


Model = Annotated[
    Path | None,
    typer.Option(help="Checkpoint directory, GGUF file or hub:OWNER/NAME[@REVISION]; the embedded model if absent."),
]
Kept = Annotated[Dtype, typer.Option(help="Dtype of the parameters; with two bytes everything is computed in float32.")]
NoSpecialTokens = Annotated[
    bool,
    typer.Option(
        "--no-special-tokens", help="Add no special tokens to texts: they have those that are written in them."
    ),
]
Chat = Annotated[
    bool, typer.Option("--chat", help="Read texts as a user's messages, by the chat template of the checkpoint.")
]
Plot = Annotated[Path | None, typer.Option(help="Write the picture to this file: .png, .pdf or .svg.")]
Save = Annotated[Path | None, typer.Option(help="Keep the result in this file, which duat.open reads in Python.")]
Csv = Annotated[
    Path | None,
    typer.Option(
        help="Write every number of the result to this CSV file, one in each row; needs duat-jax[dataframes]."
    ),
]
Json = Annotated[str | None, typer.Option("--json", help="Write JSON to this file, or to standard output for -.")]
Survey = Annotated[
    Path | None,
    typer.Option(
        "--survey",
        help="Directory of a survey, which shows where the model's neurons are strongest; the embedded model has one.",
    ),
]
Html = Annotated[
    Path | None, typer.Option(help="Write an interactive page to this file, which opens without a network: .html.")
]
Contrast = Annotated[str | None, typer.Option(help="Token or class whose logit is subtracted.")]
Against = Annotated[str | None, typer.Option(help="For encoders: the text to compare with.")]
Position = Annotated[
    int | None, typer.Option(help="Token at which the output is read; negative from the end; the last if absent.")
]
PositionOrMask = Annotated[
    int | None,
    typer.Option(
        help="Token at which the output is read; negative from the end. If absent the last one, or the only mask."
    ),
]
Work = Annotated[
    Path | None, typer.Option(help="Keep finished results in this file; an interrupted run continues from it.")
]
Steps = Annotated[int, typer.Option(min=1, help="Number of steps.")]
Batch = Annotated[int, typer.Option(min=1, help="Number of pieces of text in a step.")]
Rate = Annotated[float, typer.Option(help="The highest learning rate.")]


def renamed_option(old: str, given: Any, new: str, value: Any) -> Any:
    """Return the value of a renamed option, and say on standard error if it was given by its old name.

    Args:
        old: the old name.
        given: the value by the old name; `None` or empty if absent.
        new: the name.
        value: the value by the name.
    """
    if given is None or given == []:
        return value
    typer.echo(f"{old} is called {new} now; the old name goes with the next release", err=True)
    return given
