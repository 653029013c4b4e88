"""The command `duat`.  JAX and sympy are imported when a command runs, not for `--help`."""

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duat_jax.cli.every_command import application as application

NEW_OBJECTS = 50_000
"""The number of new objects after which garbage is looked for."""


def main() -> None:
    """Run the command that this process was started for, in the resident process if there is one."""
    from duat_jax.cli.resident.client import run

    run(_command)


def _command() -> None:
    """Run the command of `sys.argv` in this process."""
    # Modules and programs are hundreds of thousands of objects that stay: looking for garbage after every 700 of them,
    # as by default, takes a tenth of a short command's time.
    gc.set_threshold(NEW_OBJECTS)
    from duat_jax.cli.every_command import application

    application(prog_name="duat")


if not TYPE_CHECKING:  # for a type checker it would give any name

    def __getattr__(name: str) -> Any:
        if name != "application":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from duat_jax.cli.every_command import application

        return application
