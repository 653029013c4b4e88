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
"""The sizes of which a table shows the faithfulness; the JSON has all."""


def _table(title: str, rows: "Mapping[str, Row]") -> "RenderableType":
    from rich.table import Table

    from duat_jax.evaluation.circuit_curve import FRACTIONS

    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold", header_style="dim")
    table.add_column("", max_width=26)
    shown = [FRACTIONS.index(size) for size in SHOWN]
    for column in (*(f"{size:.1%}" for size in SHOWN), "logf", "CPR", "CMD", "removed", "first ahead by"):
        table.add_column(column, justify="right", no_wrap=True)
    for i, (method, row) in enumerate(rows.items()):
        table.add_row(
            method,
            *(f"{row.kept[k]:.2f}" for k in shown),
            row.numbers["logf"].written(),
            *(f"{row.numbers[name].value:.3f}" for name in ("CPR", "CMD", "removed")),
            row.ahead.written(sign="+") if i else "",
        )
    return table


def _said_of(task: str, drawn: "Drawn") -> str:
    count, tokens = drawn.prompts.clean.shape
    return f"{task}: the first {count} of {drawn.read} prompts whose answers the model knows, {tokens} tokens each"


def circuit(
    task: Annotated[list[str], typer.Option(help=f"{'; '.join(TASKS)}. Give several by several --task.")],
    model: Model = None,
    dtype: Kept = Dtype.float32,
    prompts: Annotated[int, typer.Option(min=2, help="How many prompts of each task.")] = 30,
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method; the others are compared with the first one. If absent all of them, secant first."),
    ] = None,
    units: Annotated[
        list[str] | None,
        typer.Option(
            help="What circuits are made of: 'neuron x position' if absent, 'neuron', 'head x position' or"
            " 'layer x token'."
        ),
    ] = None,
    mean: Annotated[
        bool, typer.Option("--mean", help="Corrupt by the mean over all corrupted texts, not by the prompt's own.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Which prompts are drawn.")] = 0,
    plot: Plot = None,
    json_file: Json = None,
) -> None:
    """Try which units of a language model carry a task: keep or remove what methods rank highest, corrupt the rest."""
    with one_line_errors():
        check_outputs(plot, json_file)
        start_jax(float64=dtype is Dtype.float64)
        import duat_jax as duat
        from duat_jax.attribution.units import METHODS
        from duat_jax.evaluation.circuit_plot import draw
        from duat_jax.evaluation.circuit_study import check, study

        asked = task, method or list(METHODS), units or ["neuron x position"]
        check(*asked)
        tokenizer = duat.load_tokenizer(model)
        with loading_bar() as progress:
            loaded = duat.load(model, dtype=dtype.value, progress=progress)
        bar = partial(progress_bar, what="methods on prompts")
        found = study(loaded, tokenizer, *asked, prompts=prompts, seed=seed, mean=mean, progress=bar)
        name = "embedded" if model is None else str(model).encode(errors="replace").decode()
        content = to_json({"model": name, "seed": seed, "others": "mean" if mean else "corrupted", **found.as_dict()})
        names = list(found.drawn)
        groups = {name: [name] for name in names} | ({f"mean over {len(names)} tasks": names} if names[1:] else {})
        shown = {f"{title}, {kind}": rows for title, of in groups.items() for kind, rows in found.tables(of).items()}
        said = [_said_of(name, drawn) for name, drawn in found.drawn.items()]
        tables = [part for title, rows in shown.items() for part in ("", _table(title, rows))]
        deliver(content, *said, *tables, figure=partial(draw, shown), plot=plot, json_file=json_file)
