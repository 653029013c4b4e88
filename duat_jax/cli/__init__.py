"""The command `duat`.  JAX and sympy are imported when a command runs, not for `--help`."""

import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from duat_jax.cli.attends import attends
from duat_jax.cli.audit import audit
from duat_jax.cli.circuit import circuit
from duat_jax.cli.commands import add
from duat_jax.cli.context import context
from duat_jax.cli.derive import derive
from duat_jax.cli.diff import diff
from duat_jax.cli.explain import explain
from duat_jax.cli.faithfulness import faithfulness
from duat_jax.cli.graph import graph
from duat_jax.cli.intervene import intervene, steer
from duat_jax.cli.lora import lora
from duat_jax.cli.output import EXIT_STATUS, one_line_errors
from duat_jax.cli.prune import prune
from duat_jax.cli.serve import serve
from duat_jax.cli.survey import survey
from duat_jax.cli.train_ledger import train_ledger
from duat_jax.cli.verify import verify


class _Commands(TyperGroup):
    """All commands, with one line for an error that occurs outside of them, such as a full disk that help meets."""

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            with one_line_errors():
                return super().main(*args, **options)
        except typer.Exit as ended:
            sys.exit(ended.exit_code)


application = typer.Typer(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


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


COMMANDS = (
    explain,
    graph,
    attends,
    intervene,
    steer,
    serve,
    circuit,
    context,
    diff,
    train_ledger,
    faithfulness,
    prune,
    survey,
    derive,
    audit,
    verify,
)
for command in COMMANDS:
    add(application, command, command.__name__.replace("_", "-"))
application.add_typer(
    lora, name="lora", short_help="Train low-rank adapters, show exactly what they change, and merge them."
)
