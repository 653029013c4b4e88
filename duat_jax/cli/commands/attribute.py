"""The command `duat attribute`."""

from enum import StrEnum
from typing import Annotated

import typer

from duat_jax.cli.command import CODE, command
from duat_jax.cli.commands.contrast import References
from duat_jax.cli.groups import Fields
from duat_jax.cli.options import AnyNumber, Input, Source, Top
from duat_jax.cli.output import Answer, AnyFiles
from duat_jax.cli.progress import working


class AttributedUnit(StrEnum):
    """The kind of units that are scored."""

    token = "token"
    neuron = "neuron"
    head = "head"
    stream = "stream"


@command(
    f"duat attribute {CODE} --baseline mean --method 'integrated gradients, 32 steps'",
    'duat attribute "The capital of France is" --reference "The capital of Italy is" --unit head --model DIR',
)
def attribute(
    *,
    input: Input,
    source: Annotated[Source, Fields("model", "no_special_tokens", "chat", "head", "dtype")],
    number: AnyNumber,
    references: References,
    method: Annotated[str, typer.Option(help="The name of an attribution method; an unknown one gets the list.")] = (
        "secant"
    ),
    unit: Annotated[
        AttributedUnit,
        typer.Option(
            help="The units that are scored: tokens, or at every token of every layer neurons, heads or the stream."
        ),
    ] = AttributedUnit.token,
    top: Top = 10,
    files: AnyFiles,
) -> Answer:
    """Score tokens, neurons, heads or streams by an attribution method, for one output of a model."""
    number.check()
    references.check()
    source.open()
    from duat_jax.attribution.compute import answer, ask_attribution

    compared = references.arguments(input, source)
    question = ask_attribution(source, method, unit.value, input.read(source), **compared, **number.arguments(source))
    model = source.load()
    with working("Scoring"):
        result = answer(model, question, method, unit.value)
    return Answer(
        result=result,
        record=result.as_dict(source.name),
        notes=source.notes(number.tokens, result.predictions),
        parts=[result.table(top)],
    )
