"""The command `duat circuit`."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.options import Dtype, Json, Kept, Model, Plot, Work
from duat_jax.cli.output import check_outputs, deliver, one_line_errors, to_json
from duat_jax.cli.progress import loading_bar, progress_bar
from duat_jax.inputs.tasks.registry import TASKS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from duat_jax.evaluation.circuit_study import Study


def _output(result: "Study", mean: bool, size: float | None, model: str | None) -> "Iterator[RenderableType]":
    """Yield tables and sentences: methods beside each other, circuits, what columns say, and what to do next."""
    from rich.text import Text

    from duat_jax.evaluation import circuit_table

    names = list(result.drawn)
    for name, drawn in result.drawn.items():
        count, tokens = drawn.prompts.clean.shape
        yield Text(
            f"{name}: the first {count} of {drawn.read} prompts whose answers the model knows, {tokens} tokens each"
        )
    for title, rows in result.titled().items():
        yield ""
        yield circuit_table.render_methods(title, rows)
    yield ""
    compared = any(len(rows) > 1 for rows in result.tables(names).values())
    yield from map(Text, circuit_table.columns_explained(mean, compared))
    for name in names:
        for kind, circuit in result.circuits[name].items():
            yield ""
            title = f"{name}, {kind}: the circuit of {circuit.method}" + ", refined" * bool(circuit.refinement)
            yield circuit_table.render_circuit(title, circuit, result.tokens[name])
            example = result.drawn[name].cases[0]
            yield from map(Text, circuit_table.circuit_lines(circuit, example, size is not None))
    yield ""
    yield Text("What to do next", style="bold")
    example = result.drawn[names[0]].cases[0]
    steps = circuit_table.next_steps(result.tables(names), result.circuits[names[0]], example, model)
    # A command is one line, to be copied.
    yield from (Text(step, no_wrap=step.startswith("duat ") or None) for step in steps)


def circuit(
    task: Annotated[list[str], typer.Option(help=f"{'; '.join(TASKS)}. Repeat for several tasks.")],
    model: Model = None,
    dtype: Kept = Dtype.float32,
    prompts: Annotated[int, typer.Option(min=2, help="Number of prompts of each task.")] = 30,
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method; later ones are compared with the first. All if absent, secant first."),
    ] = None,
    units: Annotated[
        list[str] | None,
        typer.Option(
            help="Units of circuits: 'neuron x position' if absent, 'neuron', 'head x position' or 'layer x token'."
        ),
    ] = None,
    mean: Annotated[
        bool, typer.Option("--mean", help="Corrupt by the mean over all corrupted texts, not by the prompt's own one.")
    ] = False,
    size: Annotated[
        float | None,
        typer.Option(
            help="Size of the listed circuit, such as 0.01 of all units; if absent the smallest that keeps half of the"
            " effect."
        ),
    ] = None,
    refine: Annotated[
        int,
        typer.Option(
            min=0,
            help="Steps, such as 20, in which the listed circuit is optimised on the metric with half of the prompts;"
            " the others measure it.",
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed for drawing prompts.")] = 0,
    work: Work = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            help="Write the circuits to this CSV file: every scored unit, or of more than 10,000 those of the circuit."
        ),
    ] = None,
    plot: Plot = None,
    json_file: Json = None,
) -> None:
    """Find the units of a language model that carry a task, and measure them: keep or remove them, and run it again."""
    with one_line_errors(work, resumable=True):
        check_outputs(plot, json_file, work, others=[csv])
        start_jax(float64=dtype is Dtype.float64)
        import duat_jax as duat
        from duat_jax.evaluation.circuit_csv import to_csv
        from duat_jax.evaluation.circuit_plot import draw
        from duat_jax.evaluation.circuit_study import check, study
        from duat_jax.evaluation.circuits import METHODS
        from duat_jax.inputs.prompts import require_next_token

        arguments = task, method or list(METHODS), units or ["neuron x position"]
        check(*arguments, size)
        require_next_token(duat.load_config(model))
        tokenizer = duat.load_tokenizer(model)
        with loading_bar() as progress:
            loaded = duat.load(model, dtype=dtype.value, progress=progress)
        result = study(
            *(loaded, tokenizer, *arguments),
            prompts=prompts,
            seed=seed,
            mean=mean,
            size=size,
            steps=refine,
            work=work,
            progress=partial(progress_bar, unit="methods on prompts"),
        )
        path = None if model is None else str(model).encode(errors="replace").decode()
        content = to_json(result.as_dict(model=path or "embedded", seed=seed, others="mean" if mean else "corrupted"))
        deliver(
            content,
            *_output(result, mean, size, path),
            figure=partial(draw, result.titled()),
            plot=plot,
            json_file=json_file,
            texts={} if csv is None else {csv: to_csv(result)},
        )
