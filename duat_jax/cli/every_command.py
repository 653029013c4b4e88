"""All commands, which typer reads."""

import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from duat_jax.cli import commands
from duat_jax.cli.command import OLD_NAMES, application
from duat_jax.cli.errors import EXIT_STATUS, one_line_errors
from duat_jax.cli.groups import say_renamed


class _Commands(TyperGroup):
    """All commands, with one line for an error that occurs outside of them, such as a full disk that help meets."""

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            with one_line_errors():
                return super().main(*args, **options)
        except typer.Exit as ended:
            sys.exit(ended.exit_code)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if (name := OLD_NAMES.get(cmd_name)) is not None:
            say_renamed(f"duat {cmd_name}", f"duat {name}")
        return super().get_command(ctx, name or cmd_name)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"duat-jax {version('duat-jax')}")
        raise typer.Exit


@application.callback(cls=_Commands, epilog=EXIT_STATUS)
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Explain exactly what a Transformer computes, and derive and check its closed form."""


for module in iter_modules(commands.__path__):
    import_module(f"{commands.__name__}.{module.name}")
