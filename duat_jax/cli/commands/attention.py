"""The command `duat attention`."""

from typing import Annotated, Any

import typer

from duat_jax.cli.command import command
from duat_jax.cli.groups import OldName
from duat_jax.cli.options import ModelOfTexts, Text
from duat_jax.cli.output import Answer, PictureFiles
from duat_jax.cli.progress import working


@command(
    'duat attention "for i in range(10" --layer 2 --head 0 --key 1 --contrast-key 0',
    'duat attention "The capital of France is" --model DIR --layer 3 --head 1 --key 2 --json -',
    old_name="attends",
)
def attention(
    *,
    text: Text,
    layer: Annotated[int, typer.Option(help="The layer, from 0.")],
    head: Annotated[int, typer.Option(help="The head, from 0.")],
    key: Annotated[int, typer.Option(help="The token that is attended to; negative counts from the end.")],
    query: Annotated[int, typer.Option(help="The token that attends; the last one if absent.")] = -1,
    contrast_key: Annotated[
        int | None,
        typer.Option(help="The token whose score is subtracted: why the first rather than the second."),
        OldName("--versus-key"),
    ] = None,
    through_heads: Annotated[
        bool,
        typer.Option(
            "--through-heads", help="Attribute the outputs of earlier heads to the heads, not to their sources."
        ),
    ] = False,
    source: ModelOfTexts,
    top: Annotated[int, typer.Option(min=1, help="Number of the largest pairs to list.")] = 10,
    files: PictureFiles,
) -> Answer:
    """Show why a head attends from one token to another: its score as a sum over pairs of sources, exactly."""
    config = source.open("call duat.explain_attention in Python for them")
    from duat_jax.interpret.attention.compute import check, explain_attention

    question: dict[str, Any] = {
        "layer": layer,
        "head": head,
        "query": query,
        "key": key,
        "contrast": contrast_key,
    }
    check(config, text, **question, tokenizer=source.tokenizer)
    model = source.load()
    with working("Explaining the score"):
        score = explain_attention(model, text, through_heads=through_heads, **question)
    return Answer(
        result=score,
        record=score.as_dict(source.name, top),
        parts=[score.table(top)],
        certified=[("the score", score.completeness)],
    )
