"""The command `duat`.  JAX and sympy are imported when a command runs, not for `--help`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duat_jax.cli.every_command import application as application


def main() -> None:
    """Run the command that this process was started for, in the resident process if there is one."""
    from duat_jax.cli.resident.client import run

    run(_command)


def _command() -> None:
    """Run the command of `sys.argv` in this process."""
    from duat_jax.cli.every_command import application

    application(prog_name="duat")


if not TYPE_CHECKING:  # for a type checker it would give any name

    def __getattr__(name: str) -> Any:
        if name != "application":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from duat_jax.cli.every_command import application

        return application
