"""The command `duat explain`."""

from enum import StrEnum
from typing import Annotated

import typer

from duat_jax.cli.command import CODE, command
from duat_jax.cli.commands.contrast import References, contrast
from duat_jax.cli.groups import Fields, OldName, say_renamed
from duat_jax.cli.options import AnyNumber, Input, ModelOfAnyInput, Top
from duat_jax.cli.output import Answer, AnyFiles
from duat_jax.cli.progress import working
from duat_jax.errors import InvalidInput


class GateRule(StrEnum):
    """The factor of a gated model's neurons through which the collapse flows."""

    gate = "gate"
    factor = "factor"
    halves = "halves"


@command(
    f"duat explain {CODE} --html page.html",
    'duat explain "The capital of France is" --model DIR --target " Paris" --contrast " Rome" --plot flow.png',
)
def explain(
    *,
    input: Input,
    source: ModelOfAnyInput,
    number: AnyNumber,
    gate_rule: Annotated[
        GateRule | None,
        typer.Option(help="The factor of a gated model's neurons through which the collapse flows; halves if absent."),
        OldName("--carries"),
    ] = None,
    references: Annotated[References, Fields("reference", "baseline", "align", hidden=True)],
    top: Top = 10,
    files: AnyFiles,
) -> Answer:
    """Show one output of a model as a complete table of contributions, which sum to it exactly."""
    number.check()
    if references != References():
        say_renamed(f"duat explain {'--reference' if references.reference else '--baseline'}", "duat contrast")
        if gate_rule is not None:
            raise InvalidInput("--gate-rule is for the collapse, and a contrast has none: leave it out")
        return contrast(input=input, source=source, number=number, references=references, top=top, files=files)

    config = source.open()
    from duat_jax.display.examples import tables
    from duat_jax.inputs.question import ask
    from duat_jax.interpret.explain.compute import answer
    from duat_jax.models.validation import require_gated

    rule = None if gate_rule is None else gate_rule.value
    require_gated(config, rule)
    examples, question = source.examples(), ask(source, input.read(source), **number.arguments(source))
    model = source.load()
    with working("Explaining"):
        result = answer(model, question, rule, collapse=True)
    return Answer(
        result=result,
        record=result.as_dict(source.name, top),
        notes=source.notes(number.tokens, result.predictions),
        parts=tables(result, top, result.top, examples),
        certified=[("the table", result.completeness), ("the collapse", result.collapse_completeness)],
        examples=examples,
    )
