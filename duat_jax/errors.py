"""The errors of this package, for mistakes in the user's input, and its warnings."""

import inspect
import os
import re
import warnings
from pathlib import Path

PACKAGE = Path(__file__).parent
INSIDE = (f"{PACKAGE}{os.sep}",)
"""The beginning of the names of this package's files."""

CALLERS = re.compile(r"<frozen importlib|.*[/\\]functools\.py|<@beartype|.*[/\\](jaxtyping|jax[/\\]_src)[/\\]")
"""Files between a user's line and this package: of imports, cached properties, checked calls, and traces by JAX."""


class DuatError(ValueError):
    """A mistake in the input; the message says what was wrong, where, and what to do."""


class UnsupportedProgram(DuatError):
    """A program, or a mark in it, that can't be followed."""


class NotAffine(DuatError):
    """A replayed function that isn't affine because a mark is missing."""


class BadCheckpoint(DuatError):
    """A checkpoint that can't be loaded or written."""


class InvalidInput(DuatError):
    """An input, target or position that is invalid for a model."""


class NotEnoughMemory(DuatError):
    """A question that needs more memory than is free."""


class NotFinite(DuatError):
    """A result that is NaN or infinite."""


def warn_caller(message: str, category: type[Warning] = UserWarning, within: tuple[str, ...] = INSIDE) -> None:
    """Warn at the user's line: the innermost one outside of this package."""
    frame = inspect.currentframe()
    assert frame is not None  # CPython has frames
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(within) or CALLERS.match(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    names = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        names.get("__name__"),
        names.setdefault("__warningregistry__", {}),
    )
