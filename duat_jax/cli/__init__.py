"""The command `duat`.  JAX and sympy are imported when a command runs, not for `--help`."""

import typer

from duat_jax.cli.attends import attends
from duat_jax.cli.audit import audit
from duat_jax.cli.circuit import circuit
from duat_jax.cli.context import context
from duat_jax.cli.derive import derive
from duat_jax.cli.explain import explain
from duat_jax.cli.faithfulness import faithfulness
from duat_jax.cli.lora import lora
from duat_jax.cli.output import EXIT_STATUS
from duat_jax.cli.prune import prune
from duat_jax.cli.verify import verify

application = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
)


@application.callback(epilog=EXIT_STATUS)
def main() -> None:
    """Explain exactly what a Transformer computes, and derive and check its closed form."""


for command in (explain, attends, circuit, context, faithfulness, prune, derive, audit, verify):
    application.command(epilog=EXIT_STATUS)(command)
application.add_typer(lora, name="lora")
