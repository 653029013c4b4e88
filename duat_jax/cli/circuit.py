"""The command `duat circuit`."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.options import Dtype, Json, Kept, Model, Plot
from duat_jax.cli.output import check_outputs, deliver, one_line_errors, to_json
from duat_jax.cli.progress import loading_bar, progress_bar
from duat_jax.inputs.tasks import TASKS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from duat_jax.evaluation.comparison import Row
    from duat_jax.inputs.prompts import Drawn

    Tables = Mapping[str, Mapping[str, Row]]

SHOWN = (0.001, 0.01, 0.1)
"""The sizes of circuits in a table; the JSON has all."""


def _table(title: str, rows: "Mapping[str, Row]") -> "RenderableType":
    from duat_jax.display.tables import NumberTable
    from duat_jax.evaluation.circuit_curve import FRACTIONS

    table = NumberTable(title=title)
    table.add_column("", max_width=26)
    columns = [FRACTIONS.index(size) for size in SHOWN]
    for column in (*(f"{size:.1%}" for size in SHOWN), "logf", "CPR", "CMD", "removed", "first ahead by"):
        table.add_column(column, justify="right")
    for i, (method, row) in enumerate(rows.items()):
        table.add_row(
            method,
            *(f"{row.kept[k]:.2f}" for k in columns),
            row.numbers["logf"].written(),
            *(f"{row.numbers[name].value:.3f}" for name in ("CPR", "CMD", "removed")),
            row.ahead.written(sign="+") if i else "",
        )
    return table


def _summary(task: str, drawn: "Drawn") -> str:
    count, tokens = drawn.prompts.clean.shape
    return f"{task}: the first {count} of {drawn.read} prompts whose answers the model knows, {tokens} tokens each"


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
    seed: Annotated[int, typer.Option(min=0, help="Seed for drawing prompts.")] = 0,
    plot: Plot = None,
    json_file: Json = None,
) -> None:
    """Measure which units of a language model carry a task: keep or remove the top-ranked units, corrupt the rest."""
    with one_line_errors():
        check_outputs(plot, json_file)
        start_jax(float64=dtype is Dtype.float64)
        import duat_jax as duat
        from duat_jax.evaluation.circuit_plot import draw
        from duat_jax.evaluation.circuit_study import check, study
        from duat_jax.evaluation.circuits import METHODS

        arguments = task, method or list(METHODS), units or ["neuron x position"]
        check(*arguments)
        tokenizer = duat.load_tokenizer(model)
        with loading_bar() as progress:
            loaded = duat.load(model, dtype=dtype.value, progress=progress)
        bar = partial(progress_bar, unit="methods on prompts")
        result = study(loaded, tokenizer, *arguments, prompts=prompts, seed=seed, mean=mean, progress=bar)
        name = "embedded" if model is None else str(model).encode(errors="replace").decode()
        content = to_json(result.as_dict(model=name, seed=seed, others="mean" if mean else "corrupted"))
        names = list(result.drawn)
        groups = {name: [name] for name in names} | ({f"mean over {len(names)} tasks": names} if names[1:] else {})
        rows_by_title = {
            f"{title}, {kind}": rows for title, of in groups.items() for kind, rows in result.tables(of).items()
        }
        summaries = [_summary(name, drawn) for name, drawn in result.drawn.items()]
        tables = [part for title, rows in rows_by_title.items() for part in ("", _table(title, rows))]
        deliver(content, *summaries, *tables, figure=partial(draw, rows_by_title), plot=plot, json_file=json_file)
