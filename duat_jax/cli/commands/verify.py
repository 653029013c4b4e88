"""The command `duat verify`."""

from typing import Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.groups import Fields
from duat_jax.cli.options import Source
from duat_jax.cli.output import Answer, JsonFile
from duat_jax.cli.progress import progress_bar, working


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
    from duat_jax.nn import BLOCKS
    from duat_jax.verification.networks import networks
    from duat_jax.verification.report import as_dict, render

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
    return Answer(record=as_dict(results), parts=[render(results)], holds=all(result.holds for result in results))
