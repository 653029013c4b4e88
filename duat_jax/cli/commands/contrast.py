"""The command `duat contrast`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from duat_jax.cli.command import command
from duat_jax.cli.groups import OldName
from duat_jax.cli.options import AnyNumber, Input, ModelOfAnyInput, Source, Top
from duat_jax.cli.output import Answer, AnyFiles
from duat_jax.cli.progress import working
from duat_jax.errors import InvalidInput


class ContrastBaseline(StrEnum):
    """Baselines for a text or an image."""

    mask = "mask"
    pad = "pad"
    mean = "mean"
    blur = "blur"


@dataclass(frozen=True, kw_only=True)
class References:
    """Options of what an input is contrasted with."""

    reference: Annotated[
        list[str] | None,
        typer.Option(
            help="Contrast with this text of as many tokens, or this image's file: the difference is split, layer by"
            " layer. Repeat for an average."
        ),
        OldName("--versus"),
    ] = None
    baseline: Annotated[
        list[ContrastBaseline] | None,
        typer.Option(
            help="Contrast with a baseline: the mask, padding or the vocabulary's mean at every token but special ones,"
            " or for an image its blurred version or its mean. Repeat for an average."
        ),
    ] = None
    align: Annotated[
        str | None,
        typer.Option(
            help="For a --reference of another length, pairs of token indices in the text and in it, such as 0:0,1:2."
        ),
    ] = None

    def check(self) -> None:
        """Raise for an alignment without a text that it is of."""
        if self.align is not None and not self.reference:
            raise InvalidInput("--align places the tokens of --reference TEXT: give that too")

    def arguments(self, input: Input, source: Source) -> dict[str, Any]:
        """Return the arguments of a question about a difference; no reference if none is given."""
        from duat_jax.inputs.baseline_kinds import KINDS
        from duat_jax.inputs.baselines import read_pairs

        texts = [input.paired(source, text) for text in self.reference or []]
        baselines = [KINDS[each.value]() for each in self.baseline or []]
        pairs = None if self.align is None else read_pairs(self.align, "--align")
        return {"reference": [*texts, *baselines] or None, "alignment": pairs}


@command(
    'duat contrast "The capital of France is" --reference "The capital of Italy is" --model DIR --plot contrast.png',
    "duat contrast 'for i in range(10' --baseline mean --html contrast.html",
)
def contrast(
    *, input: Input, source: ModelOfAnyInput, number: AnyNumber, references: References, top: Top = 10, files: AnyFiles
) -> Answer:
    """Split the difference of one output of a model between an input and a reference, `A − B`, exactly."""
    number.check()
    references.check()
    if not references.reference and not references.baseline:
        raise InvalidInput("give what is contrasted with: --reference or --baseline")

    source.open()
    from duat_jax.display.examples import tables
    from duat_jax.inputs.baselines import ask_contrast
    from duat_jax.interpret.contrast.compute import answer
    from duat_jax.interpret.contrast.heads import HEAD_RUNS

    examples, given = source.examples(), input.read(source)
    compared = references.arguments(input, source)
    question = ask_contrast(source, given, **compared, **number.arguments(source))
    model = source.load()
    with working("Contrasting"):
        result = answer(model, question, head_runs=min(top, HEAD_RUNS))
    return Answer(
        result=result,
        record=result.as_dict(source.name, top),
        notes=source.notes(number.tokens, result.predictions),
        parts=tables(result, top, result.top_neurons, examples),
        certified=[("the contrast", result.completeness)],
        examples=examples,
    )
