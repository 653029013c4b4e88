"""The command `duat graph`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.explain import _read_text, check_options, examples_of, read_output, say_sizes
from duat_jax.cli.options import (
    Chat,
    Contrast,
    Csv,
    Dtype,
    Html,
    Json,
    Kept,
    Model,
    NoSpecialTokens,
    Plot,
    PositionOrMask,
    Save,
    Survey,
)
from duat_jax.cli.output import deliver, one_line_errors, require_holding, space_lines, to_json
from duat_jax.cli.progress import loading_bar, working
from duat_jax.errors import BadText


def graph(
    text: Annotated[str, typer.Argument(help="The text that the model reads; [MASK] or <mask> marks the token.")],
    model: Model = None,
    no_special_tokens: NoSpecialTokens = False,
    chat: Chat = False,
    target: Annotated[
        str | None, typer.Option(help="Token to follow, or class by name or number; the most probable if absent.")
    ] = None,
    contrast: Contrast = None,
    position: PositionOrMask = None,
    neurons: Annotated[
        int, typer.Option(min=0, help="Number of the largest neurons of which is split what they read and write.")
    ] = 24,
    scores: Annotated[
        int, typer.Option(min=0, help="Number of the heads with the largest moves whose attention is explained.")
    ] = 3,
    dtype: Kept = Dtype.float32,
    top: Annotated[int, typer.Option(min=1, help="Number of the largest moves and neurons to list.")] = 10,
    plot: Plot = None,
    html: Html = None,
    survey: Survey = None,
    viewer: Annotated[
        Path | None,
        typer.Option(help="Write the graph of the neurons for circuit-tracer's and Neuronpedia's viewers: .json."),
    ] = None,
    graphml: Annotated[
        Path | None, typer.Option(help="Write streams and moves as GraphML: .graphml; needs duat-jax[graphs].")
    ] = None,
    save: Save = None,
    csv: Csv = None,
    json_file: Json = None,
) -> None:
    """Follow one output through a model: what every token of every layer is the sum of, head by head, exactly."""
    with one_line_errors():
        check_options((text, target, contrast), plot, json_file, save, csv, html, [viewer, graphml])
        if graphml is not None and find_spec("networkx") is None:
            raise BadText("--graphml needs networkx, which isn't installed: pip install 'duat-jax[graphs]'")

        start_jax(float64=dtype is Dtype.float64)
        import jax.numpy as jnp
        import numpy as np

        import duat_jax as duat
        from duat_jax.display.examples import table as strongest
        from duat_jax.inputs.request import check_one
        from duat_jax.interpret.memory import warn_of_memory

        config = duat.load_config(model)
        if config.image is not None:
            raise BadText(f"a {config.family} model reads images: call duat.graph in Python for them")
        examples = examples_of(config, model, survey)
        tokenizer, inputs, _ = _read_text(model, config, text, None, None, [], not no_special_tokens, chat)
        arguments: dict[str, Any] = {
            "target": read_output(config, tokenizer, target, "target"),
            "contrast": read_output(config, tokenizer, contrast, "contrast"),
            "position": position,
            "tokenizer": tokenizer,
        }
        checked, _ = check_one(config, inputs, **arguments)
        warn_of_memory("explain", config, len(checked.real), dtype.value)
        with loading_bar() as progress:
            loaded = duat.load(model, dtype=jnp.dtype(dtype.value), progress=progress)
        with np.errstate(all="ignore"):
            with working("Following the value"):
                result = duat.graph(loaded, inputs, neurons=neurons, scores=scores, **arguments)
            require_holding("the table", result.explanation.completeness)
            require_holding("the streams", result.completeness)
            name = "embedded" if model is None else str(model).encode(errors="replace").decode()
            content = to_json(result.as_dict(name, top))
            texts = {} if html is None else {html: result.to_html(examples=examples)}
            if viewer is not None:
                texts[viewer] = to_json(result.to_viewer(viewer.stem))
            if graphml is not None:
                from networkx import generate_graphml

                texts[graphml] = "\n".join(generate_graphml(result.to_networkx())) + "\n"
        say_sizes(texts)
        files: dict[str, Any] = {"plot": plot, "json_file": json_file, "save": save, "table": csv}
        tokens = {"--target": target, "--contrast": contrast}
        notes = space_lines(config, tokenizer, tokens, result.explanation.predictions)
        named = [] if examples is None else strongest(result.explanation.top(top), examples)
        deliver(content, *notes, result.table(top), *named, figure=result.plot, texts=texts, result=result, **files)
