"""Errors of the code that a block is compared with, each in one line with its place."""

import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from duat_jax.errors import PACKAGE, DuatError
from symbolic.errors import SymbolicError

_INSTALLED = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(PACKAGE), str(Path(__file__).parents[1])}
)
"""The folders of installed packages: a line elsewhere is the user's."""


@contextmanager
def of_user(what: str) -> Iterator[None]:
    """Raise an error of the user's code as one line; those of this package say what to do already.

    Args:
        what: whose code it is, in words.
    """
    try:
        yield
    except (DuatError, SymbolicError):
        raise
    except Exception as error:
        (reason, *_) = str(error).splitlines() or [""]
        raise SymbolicError(f"{what} raises {type(error).__name__}: {reason}{_place(error)}") from error


def _place(error: Exception) -> str:
    """Return the innermost line outside of installed packages, in brackets."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((*_INSTALLED, "<"))]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def guarded(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Return a function whose errors are one line.

    Args:
        function: a function of the user.
        what: whose code it is, in words.
    """

    def call(*arguments: Any) -> Any:
        with of_user(what):
            return function(*arguments)

    return call
