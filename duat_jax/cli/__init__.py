"""The command `duat`.  JAX and sympy are imported when a command runs, not for `--help`."""

from importlib.metadata import version
from typing import Annotated

import typer

from duat_jax.cli.attends import attends
from duat_jax.cli.audit import audit
from duat_jax.cli.circuit import circuit
from duat_jax.cli.commands import add
from duat_jax.cli.context import context
from duat_jax.cli.derive import derive
from duat_jax.cli.explain import explain
from duat_jax.cli.faithfulness import faithfulness
from duat_jax.cli.graph import graph
from duat_jax.cli.intervene import intervene, steer
from duat_jax.cli.lora import lora
from duat_jax.cli.output import EXIT_STATUS
from duat_jax.cli.prune import prune
from duat_jax.cli.verify import verify

application = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"duat-jax {version('duat-jax')}")
        raise typer.Exit


@application.callback(epilog=EXIT_STATUS)
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Explain exactly what a Transformer computes, and derive and check its closed form."""


COMMANDS = explain, graph, attends, intervene, steer, circuit, context, faithfulness, prune, derive, audit, verify
for command in COMMANDS:
    add(application, command, command.__name__)
application.add_typer(
    lora, name="lora", short_help="Train low-rank adapters, show exactly what they change, and merge them."
)
