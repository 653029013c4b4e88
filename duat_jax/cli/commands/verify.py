"""The command `duat verify`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from duat_jax.cli.command import command
from duat_jax.cli.groups import Fields
from duat_jax.cli.options import Source
from duat_jax.cli.output import Answer, JsonFile
from duat_jax.cli.progress import progress_bar, working

if TYPE_CHECKING:
    from rich.table import Table

    from duat_jax.verification.compare import Verification


def _network(result: "Verification") -> dict[str, Any]:
    differences = [
        {"route": d.route, "largest": d.largest, "tolerance": d.tolerance, "holds": d.holds} for d in result.differences
    ]
    return {"name": result.name, "depth": result.depth, "holds": result.holds, "differences": differences}


def _table(results: "list[Verification]") -> "Table":
    from rich.table import Table

    columns = "network", "depth", "symbolic form and", "largest difference", "tolerance", "verdict"
    table = Table(*columns, box=None, pad_edge=False)
    for result in results:
        for d in result.differences:
            ok = "holds" if d.holds else "FAILS"
            table.add_row(result.name, str(result.depth), d.route, f"{d.largest:.1e}", f"{d.tolerance:.1e}", ok)
    return table


@command("duat verify --depth 3", "duat verify --model DIR --json -")
def verify(
    *,
    depth: Annotated[int | None, typer.Option(help="Layers; 4 if absent, or all layers of a model.")] = None,
    block: Annotated[
        str | None, typer.Option(help="paper, paper-residual, pre-norm, post-norm or parallel; all if absent.")
    ] = None,
    source: Annotated[
        Source,
        Fields("model", model="Checkpoint directory, GGUF file or hub:OWNER/NAME, instead of random networks."),
    ],
    files: JsonFile,
) -> Answer:
    """Compare the symbolic form with the numeric closed form and the forward pass of real networks, in float64."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from duat_jax.json_record import as_record
    from duat_jax.nn import BLOCKS
    from duat_jax.verification.networks import networks
    from duat_jax.verification.record import VerificationRecord

    compared, results = networks(depth=depth, block=block, model=source.model), []
    if source.model is None:
        total = len(BLOCKS) if block is None else 1
        with progress_bar("Comparing", "networks") as progress:
            progress(0, total)
            for result in compared:
                results.append(result)
                progress(len(results), total)
    else:
        with working("Loading and comparing the model"):
            results += compared
    record = as_record(VerificationRecord, None, networks=[_network(result) for result in results])
    return Answer(record=record, parts=[_table(results)], holds=all(result.holds for result in results))
