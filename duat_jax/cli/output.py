"""Errors, exit statuses and output of the commands."""

import errno
import io
import json
import os
import re
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType
    from rich.text import Text
    from tokenizers import Tokenizer

    from duat_jax.display.result import Displayed
    from duat_jax.forms.completeness import Completeness
    from duat_jax.models.config import Config

MISTAKE, DOES_NOT_HOLD, NOT_WRITTEN, INTERRUPTED = 2, 3, 4, 130
"""Exit statuses; 1 is left to Python, which ends with it for an uncaught exception."""

EXIT_STATUS = (
    "Exit status: 0 if all is well, 2 for a mistake in the input, 3 if a result does not hold: a sum that"
    " misses its value, a number that is not finite, a proof or a comparison that fails. 4 if a file couldn't be"
    " written; a result that was computed is printed all the same. 130 if it was interrupted."
)


FULL = errno.ENOSPC, errno.EDQUOT
"""The errors of a full disk, and of a full share of it."""


OPTIONS: ContextVar[frozenset[str]] = ContextVar("OPTIONS", default=frozenset())
"""The options of the command that runs."""


class DoesNotHold(Exception):
    """A result that fails its own check."""


class NotWritten(Exception):
    """A result that couldn't be written to its file."""


def in_one_line(message: str) -> str:
    """Return a message of the library in one line, without the options in parentheses that the command lacks.

    Args:
        message: the message; an option that only some commands have stands in it as ` (--option …)`.
    """

    def kept(suggestion: re.Match[str]) -> str:
        return suggestion[0] if suggestion[1] in OPTIONS.get() else ""

    return re.sub(r" \((--[a-z-]+)[^()]*\)", kept, " ".join(message.split()))


@contextmanager
def one_line_errors(work: Path | None = None, *, resumable: bool = False) -> Iterator[None]:
    """Turn the user's errors, and results that don't hold, into one line and an exit status.

    Args:
        work: the file in which finished results are kept, for the message of an interrupted or failed run.
        resumable: whether the command has the option `--work`, which the same message names if it is absent.
    """
    from duat_jax.errors import DuatError, NotFinite
    from symbolic.errors import SymbolicError

    kept = "nothing is kept" + (": with --work the same command continues from there" if resumable else "")
    if work is not None:
        kept = f"finished results are kept in {work}: the same command continues from there"

    def show_warning(message: Warning | str, *place: Any) -> None:
        typer.echo(f"duat: {in_one_line(str(message))}", err=True)

    try:
        with warnings.catch_warnings():
            module: Any = warnings
            module.showwarning = show_warning
            yield
        if sys.stdout is None:
            raise NotWritten("standard output is closed, so that nothing could be printed")
        sys.stdout.flush()  # a full disk is reported here rather than when Python ends
    except BrokenPipeError:  # such as `duat audit | head -1`: the reader has seen enough
        raise
    except (DuatError, SymbolicError, OSError, DoesNotHold, NotWritten, UnicodeEncodeError) as error:
        message = str(error)
        if isinstance(error, UnicodeEncodeError):
            message = (
                f"{error.encoding} has no {error.object[error.start]!a}: let standard output be UTF-8 (PYTHONUTF8=1)"
            )
        statuses = {NotWritten: NOT_WRITTEN, DoesNotHold: DOES_NOT_HOLD, NotFinite: DOES_NOT_HOLD}
        status = next((n for kind, n in statuses.items() if isinstance(error, kind)), MISTAKE)
        if isinstance(error, OSError) and error.errno in FULL:
            status = NOT_WRITTEN
            message = f"{error.filename or 'standard output'} couldn't be written: {error.strerror}"
        if resumable and status != MISTAKE and not isinstance(error, NotFinite):
            message += f"; {kept}"
        typer.echo(f"duat: {in_one_line(message)}", err=True)
        raise typer.Exit(status) from None
    except KeyboardInterrupt:
        typer.echo(f"duat: interrupted; {kept}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def require_holding(label: str, completeness: "Completeness") -> None:
    """Raise unless a result's parts sum to its value.

    Args:
        label: what it is, for the message.
        completeness: of the result.

    Raises:
        DoesNotHold: with the numbers.
    """
    if completeness.verdict != "holds":
        value, total, error = float(completeness.value), float(completeness.sum), float(completeness.error)
        tolerance, largest = float(completeness.tolerance), float(completeness.largest)
        raise DoesNotHold(
            f"{label} is not certified, its completeness {completeness.verdict}: value {value:.7g}, sum of all parts"
            f" {total:.7g}, error {error:+.1e}, tolerance {tolerance:.1e}, largest part {largest:.1e}"
            f" ({completeness.dtype})" + (f". {completeness.note}" if completeness.note else "")
        )


def require_no_failure(label: str, completeness: "Completeness") -> None:
    """Raise if the parts of a change don't sum to it; a zero change has no size, so that its sum isn't conclusive.

    Args:
        label: what the sum is, for the message.
        completeness: of the change.

    Raises:
        DoesNotHold: with the numbers.
    """
    if completeness.verdict == "fails":
        raise DoesNotHold(
            f"{label} misses its value by {float(completeness.error):+.1e}, more than"
            f" {float(completeness.tolerance):.1e}" + (f". {completeness.note}" if completeness.note else "")
        )


def check_output(path: Path) -> None:
    """Raise if a file can't be written, before anything is computed.

    Args:
        path: the file.

    Raises:
        BadText: naming the path and what to do.
    """
    from duat_jax.errors import BadText
    from duat_jax.files import temporary_path

    try:
        if path.is_dir() or not path.name:
            raise BadText(f"{str(path)!r} is a directory: give the name of a file")
        if not path.absolute().parent.is_dir():
            raise BadText(f"{path.parent} is not a directory: make it before writing {path.name} there")
        if _is_special(path):
            if not os.access(path, os.W_OK):
                raise BadText(f"{path} can't be written to: give another file")
            return
        temporary = temporary_path(path)
        temporary.touch()
        temporary.unlink()
    except BadText:
        raise
    except (OSError, ValueError) as error:  # a null character is a ValueError
        why = getattr(error, "strerror", None) or error
        raise BadText(f"can't write {str(path)!r}: {why}; give another file") from None


def check_outputs(
    plot: Path | None,
    json_file: str | None,
    work: Path | None = None,
    *directories: Path | None,
    others: Iterable[Path | None] = (),
    save: Path | None = None,
    table: Path | None = None,
) -> None:
    """Raise if a picture, JSON or finished work can't be written, before anything is computed.

    Args:
        plot: file of the picture; none if absent.
        json_file: file of the JSON, or `-` for standard output; none if absent.
        work: file of finished work; none if absent.
        directories: directories that are written and checked separately; none for what is absent.
        others: other files; none for what is absent.
        save: file of the result; none if absent.
        table: file of the result's table, which pandas makes; none if absent.

    Raises:
        BadText: naming the file and what to do.
    """
    from duat_jax.errors import BadText

    written = [Path(json_file)] if json_file is not None and json_file != "-" else []
    if plot is not None:
        written.append(plot)
    if table is not None and find_spec("pandas") is None:
        raise BadText("--csv needs pandas: pip install 'duat-jax[dataframes]'")
    written += [path for path in (*others, table, work, save) if path is not None]
    for path in written:
        check_output(path)
    if special := [str(path) for path in (work, save) if path is not None and _is_special(path)]:
        raise BadText(f"{special[0]} isn't a regular file, and what is kept is read again: give a regular file")
    written += [path for path in directories if path is not None]
    resolved = [path.resolve() for path in written]
    if twice := [str(path) for i, path in enumerate(written) if resolved[i] in resolved[:i]]:
        raise BadText(f"{', '.join(twice)} is given for two outputs: give two files")


def _is_special(path: Path) -> bool:
    """Return whether a path is a device, a pipe or the like; raise for invalid names."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def write(path: Path, content: bytes) -> None:
    """Write a file completely or not at all; write directly to a special file, such as a device.

    Args:
        path: the file.
        content: its content.
    """
    from duat_jax.files import write_file

    if _is_special(path):
        path.write_bytes(content)
    else:
        write_file(path, content)


def to_json(value: Any) -> str:
    """Convert a result to JSON.

    Args:
        value: plain data.

    Raises:
        DoesNotHold: if a number in it is NaN or infinite, which JSON doesn't have.
    """
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError:
        raise DoesNotHold("the result does not hold: it has numbers that are NaN or infinite") from None


def write_json(target: str, content: str) -> None:
    """Write JSON to a file, or to standard output.

    Args:
        target: the file's name, or `-` for standard output.
        content: the JSON.
    """
    if target == "-":
        typer.echo(content, nl=False)
    else:
        write(Path(target), content.encode())


def show(*parts: "RenderableType") -> None:
    """Print to standard output, as wide as the terminal, or as tables are by default.

    Args:
        parts: tables and lines.
    """
    from rich.console import Console

    from duat_jax.display.result import WIDTH

    console = Console()
    console = console if console.is_terminal else Console(width=WIDTH)
    for part in parts:
        # A line to be copied stays one line; `print` joins texts and forgets that.
        uncut = getattr(part, "no_wrap", None)
        console.print(part, crop=False, no_wrap=uncut, overflow="ignore" if uncut else None)


def space_lines(config: "Config", tokenizer: "Tokenizer | None", *tokens: Any) -> "list[Text]":
    """Return a line for each token that is given without the leading space with which it is another one.

    Args:
        config: the model's parts.
        tokenizer: its tokenizer.
        tokens: further arguments of `space_notes`: the tokens, and what the model says.
    """
    from duat_jax.display.tables import note_lines
    from duat_jax.inputs.leading_space import space_notes

    return note_lines(space_notes(config, tokenizer, *tokens))


def deliver(
    content: str,
    *parts: "RenderableType",
    figure: "Callable[[], Figure] | None" = None,
    plot: Path | None = None,
    json_file: str | None = None,
    texts: Mapping[Path, str] | None = None,
    result: "Displayed | None" = None,
    save: Path | None = None,
    table: Path | None = None,
) -> None:
    """Write a command's files, and print its tables unless the JSON goes to standard output.

    Args:
        content: the JSON, from `to_json`.
        parts: tables and lines.
        figure: draws the picture.
        plot: file of the picture; none if absent.
        json_file: file of the JSON, or `-` for standard output; none if absent.
        texts: other files and their contents.
        result: the result, for the following two files.
        save: file that `duat.open` reads; none if absent.
        table: file of the result's table as CSV; none if absent.
    """
    if json_file != "-":
        show(*parts)
    try:
        if plot is not None and figure is not None:
            picture = io.BytesIO()
            figure().savefig(picture, format=plot.suffix[1:].lower(), dpi=150)
            write(plot, picture.getvalue())
        for path, text in (texts or {}).items():
            write(path, text.encode())
        if save is not None and result is not None:
            result.save(save)
        if table is not None and result is not None:
            write(table, result.to_dataframe().to_csv(index=False).encode())
        if json_file is not None:
            write_json(json_file, content)
    except OSError as error:
        file = error.filename or plot or json_file or save or table
        raise NotWritten(f"{file} couldn't be written: {error.strerror or error}; the result was computed") from None
