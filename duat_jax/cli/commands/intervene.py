"""The commands `duat intervene` and `duat steer`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from duat_jax.cli.command import CODE, command
from duat_jax.cli.groups import Fields, OldName
from duat_jax.cli.options import Beside, Input, ModelOfTexts, Number, Pair, Source, TextOrFile
from duat_jax.cli.output import Answer, PageFiles
from duat_jax.cli.progress import working
from duat_jax.errors import InvalidInput

if TYPE_CHECKING:
    from duat_jax.transform.editing import Edit

Token = Annotated[
    Number,
    Fields(
        *("target", "contrast", "position"),
        target="The token that is read; the most probable one if absent.",
        contrast="The token whose logit is subtracted.",
        position="The token at which the logit is read; the last one if absent.",
    ),
]


@command(
    f"duat intervene {CODE} --edit 'head 5:3 set 0'",
    'duat intervene "The capital of France is" --model DIR --edit "neurons 20:5,7@-1 scale 2" --target " Paris"',
)
def intervene(
    *,
    text: TextOrFile,
    edit: Annotated[
        list[str] | None,
        typer.Option(
            help="What is edited, such as 'head 5:3 set 0', 'neurons 3:17,20@-1 scale 2' or 'stream 6@2 set 0':"
            " LAYER:UNITS@TOKENS; 'token 3 set mean', 'edge 5:3 2>7 set 0': LAYER:HEAD FROM>TO. 'set reference' sets"
            " to the values on --reference. Repeat for several; one is required."
        ),
        OldName("--change"),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="Another text of as many tokens, for edits that 'set reference' (patching)."),
        OldName("--versus"),
    ] = None,
    pair: Pair = None,
    beside: Beside = None,
    source: ModelOfTexts,
    number: Token,
    files: PageFiles,
) -> Answer:
    """Turn heads or neurons off, scale or patch them, run the model again, and split what changes over the edits."""
    from duat_jax.interpret.intervene.patching import is_patch
    from duat_jax.interpret.intervene.written import parse_edits

    if not edit:  # an option with an old name has a default
        raise InvalidInput("nothing is edited: give --edit, such as --edit 'head 5:3 set 0'")
    edits = parse_edits(edit, reference or "")
    if (reference is None) == any(map(is_patch, edits)):
        raise InvalidInput("--edit '… set reference' sets values to those on --reference TEXT: give both, or neither")
    return _answer(source, number, Input(text=text, pair=pair, beside=beside), edits, reference)


@command(
    'duat steer "x = self." --towards "import os" --away "class Box:" --layers 3 --strength 2',
    'duat steer "I think" --towards "Love" --away "Hate" --layers 6 --model DIR --target " happy"',
)
def steer(
    *,
    text: TextOrFile,
    towards: Annotated[str, typer.Option(help="A text that the model's stream is pushed towards.")],
    away: Annotated[str, typer.Option(help="A text that it is pushed away from.")],
    layers: Annotated[int, typer.Option(min=0, help="After how many layers the direction is added.")],
    strength: Annotated[float, typer.Option(help="How often the direction is added.")] = 1.0,
    tokens: Annotated[
        str | None,
        typer.Option(
            help="At which tokens it is added, such as 4,5 or -1; of an encoder with a decoder also 'encoder' or"
            " 'decoder', for those of one text. Every token if absent."
        ),
    ] = None,
    pair: Pair = None,
    source: ModelOfTexts,
    number: Token,
    files: PageFiles,
) -> Answer:
    """Add a direction to the residual stream: from one text's last token to that of another."""
    from duat_jax.edits import SteeringVector, Stream
    from duat_jax.interpret.intervene.written import read_tokens

    place = Stream(layers, None if tokens is None else read_tokens(tokens))
    edits = [place.steer(SteeringVector(towards, away, strength))]
    return _answer(source, number, Input(text=text, pair=pair), edits)


def _answer(
    source: Source, number: Number, input: Input, edits: "Sequence[Edit]", reference: str | None = None
) -> Answer:
    """Run the model with edits, and beside a contrast with the reference if there is one."""
    config = source.open("call duat.intervene in Python for them")
    from duat_jax.interpret.intervene.compute import check
    from duat_jax.interpret.intervene.patching import from_reference, intervene_beside_contrast

    question, text = number.arguments(source), input.read(source)
    other = None if reference is None else input.paired(source, reference)
    edits = from_reference(edits, other)
    if config.marks is None:  # the marks of a model by its PyTorch code are known once it is loaded
        check(source, text, edits, **question)
    model = source.load()
    with working("Running the model with the edits"):
        result = intervene_beside_contrast(model, text, edits, other, **question)
    return Answer(
        result=result,
        record=result.as_dict(source.name),
        notes=source.notes(number.tokens, result.predictions),
        parts=[result.table()],
        certified=[("the secant's column", result.completeness)] if result.reaches else (),
    )
