"""The command `duat circuit`."""

from functools import partial
from typing import Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.groups import Fields
from duat_jax.cli.options import ModelAndDtype
from duat_jax.cli.output import Answer, Files
from duat_jax.cli.progress import progress_bar
from duat_jax.inputs.tasks.registry import TASKS


@command(
    "duat circuit --task parameter --prompts 10",
    'duat circuit --task "indirect object" --model DIR --method secant --work circuit.work --csv circuit.csv',
)
def circuit(
    *,
    task: Annotated[list[str], typer.Option(help=f"{'; '.join(TASKS)}. Repeat for several tasks.")],
    source: ModelAndDtype,
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
    files: Annotated[Files, Fields("work", "circuits", "plot", "json_file")],
) -> Answer:
    """Find the units of a language model that carry a task, and measure them: keep or remove them, and run it again."""
    config = source.open()
    from duat_jax.evaluation.circuit_csv import to_csv
    from duat_jax.evaluation.circuit_plot import draw
    from duat_jax.evaluation.circuit_study import check, study
    from duat_jax.evaluation.circuit_table import render
    from duat_jax.evaluation.circuits import METHODS
    from duat_jax.inputs.prompts import require_next_token

    question = task, method or list(METHODS), units or ["neuron x position"]
    check(*question, size)
    require_next_token(config)
    result = study(
        source.load(),
        *question,
        prompts=prompts,
        seed=seed,
        mean=mean,
        size=size,
        steps=refine,
        work=files.work,
        tokenizer=source.tokenizer,
        progress=partial(progress_bar, unit="methods on prompts"),
    )
    return Answer(
        record=result.as_dict(model=source.name, seed=seed, others="mean" if mean else "corrupted"),
        parts=render(result, mean, size is not None, None if source.model is None else source.name),
        texts={} if files.circuits is None else {files.circuits: to_csv(result)},
        figure=partial(draw, result.titled()),
    )
