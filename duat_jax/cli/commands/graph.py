"""The command `duat graph`."""

from typing import Annotated

import typer

from duat_jax.cli.command import CODE, command
from duat_jax.cli.groups import Fields, OldName
from duat_jax.cli.options import Input, Number, Source
from duat_jax.cli.output import Answer, Files, to_json
from duat_jax.cli.progress import working


@command(
    f"duat graph {CODE} --html graph.html",
    'duat graph "The capital of France is" --model DIR --viewer paris.json --graphml paris.graphml',
)
def graph(
    *,
    input: Annotated[Input, Fields("text", "pair")],
    source: Annotated[Source, Fields("model", "no_special_tokens", "chat", "dtype", "survey")],
    number: Annotated[
        Number,
        Fields(
            *("target", "contrast", "position"),
            target="Token to follow, or class by name or number; the most probable if absent.",
        ),
    ],
    top_neurons: Annotated[
        int,
        typer.Option(min=0, help="Number of the largest neurons of which is split what they read and write."),
        OldName("--neurons"),
    ] = 24,
    top_heads: Annotated[
        int,
        typer.Option(min=0, help="Number of the heads with the largest moves whose attention is explained."),
        OldName("--scores"),
    ] = 3,
    top: Annotated[int, typer.Option(min=1, help="Number of the largest moves and neurons to list.")] = 10,
    files: Annotated[Files, Fields("out", "plot", "html", "viewer", "graphml", "save", "csv", "parquet", "json_file")],
) -> Answer:
    """Follow one output through a model: what every token of every layer is the sum of, head by head, exactly."""
    source.open("call duat.graph in Python for them")
    from duat_jax.display.examples import tables
    from duat_jax.inputs.question import ask_once
    from duat_jax.interpret.graph.compute import answer

    examples, question = source.examples(), ask_once(source, input.read(source), **number.arguments(source))
    model = source.load()
    with working("Following the value"):
        result = answer(model, question, top_neurons, top_heads)
    texts = {}
    if files.viewer is not None:
        texts[files.viewer] = to_json(result.to_viewer(files.viewer.stem))
    if files.graphml is not None:
        from networkx import generate_graphml

        texts[files.graphml] = "\n".join(generate_graphml(result.to_networkx())) + "\n"
    explanation = result.explanation
    return Answer(
        result=result,
        record=result.as_dict(source.name, top),
        notes=source.notes(number.tokens, explanation.predictions),
        parts=tables(result, top, explanation.top, examples),
        texts=texts,
        certified=[("the table", explanation.completeness), ("the streams", result.completeness)],
        examples=examples,
    )
