"""The command line, run in this process."""

from typer.testing import CliRunner

from duat_jax.cli import application


def run(*arguments):
    return CliRunner().invoke(application, list(map(str, arguments)))
