"""Errors of the commands in one line, and their exit statuses."""

import errno
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from duat_jax.forms.completeness import Completeness

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
    """Return a message of the library in one line, without the options in parentheses that the command lacks."""

    def kept(suggestion: re.Match[str]) -> str:
        return suggestion[0] if suggestion[1] in OPTIONS.get() else ""

    return re.sub(r" \((--[a-z-]+)[^()]*\)", kept, " ".join(message.split()))


@contextmanager
def one_line_errors(work: Path | None = None, *, resumable: bool = False) -> Iterator[None]:
    """Turn the user's errors, and results that don't hold, into one line and an exit status."""
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
    """Raise unless a result's parts sum to its value."""
    if completeness.verdict != "holds":
        value, total, error = float(completeness.value), float(completeness.sum), float(completeness.error)
        tolerance, largest = float(completeness.tolerance), float(completeness.largest)
        raise DoesNotHold(
            f"{label} is not certified, its completeness {completeness.verdict}: value {value:.7g}, sum of all parts"
            f" {total:.7g}, error {error:+.1e}, tolerance {tolerance:.1e}, largest part {largest:.1e}"
            f" ({completeness.dtype})" + (f". {completeness.note}" if completeness.note else "")
        )


def require_no_failure(label: str, completeness: "Completeness") -> None:
    """Raise if the parts of a change don't sum to it; a zero change has no size, so that its sum isn't conclusive."""
    if completeness.verdict == "fails":
        raise DoesNotHold(
            f"{label} misses its value by {float(completeness.error):+.1e}, more than"
            f" {float(completeness.tolerance):.1e}" + (f". {completeness.note}" if completeness.note else "")
        )
