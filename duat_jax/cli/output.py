"""What the commands share: errors in one line, and files written whole."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors that the user can mend into one line and exit status 2."""
    from duat_jax.errors import DuatError
    from symbolic.errors import SymbolicError

    try:
        yield
    except (DuatError, SymbolicError, OSError) as error:
        typer.echo("duat: " + " ".join(str(error).split()), err=True)
        raise typer.Exit(2) from None


def check_output(path: Path) -> None:
    """Raise before anything is computed if a file can't be written there.

    Args:
        path: the file to be written.

    Raises:
        BadText: naming the path and what to do.
    """
    from duat_jax.errors import BadText

    if path.is_dir() or not path.name:
        raise BadText(f"{str(path)!r} is a directory: give the name of a file")
    if not path.absolute().parent.is_dir():
        raise BadText(f"{path.parent} is not a directory: make it before writing {path.name} there")


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; what isn't an ordinary file, such as a device, is written to.

    Args:
        path: the file.
        content: all of it.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(target: str, content: str) -> None:
    """Write JSON to a file, or to standard output.

    Args:
        target: the file's name, or `-` for standard output.
        content: the JSON.
    """
    if target == "-":
        sys.stdout.write(content)
    else:
        write(Path(target), content.encode())
