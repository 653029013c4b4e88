"""Problems found while reading a checkpoint, collected for one report."""

import reprlib
from pathlib import Path
from typing import Any

from duat_jax.errors import BadCheckpoint

SHOWN_PROBLEMS = 12

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


def quoted(value: Any) -> str:
    """Abbreviate a value for a message of one line.

    Example:
        >>> quoted([1, {"a": [[[[[2]]]]]}])
        "[1, {'a': [[[[...]]]]}]"
    """
    return " ".join(_SHORT.repr(value).split())


def raise_problems(path: Path, problems: list[str]) -> None:
    """Raise one error that names all problems."""
    if problems:
        more = len(problems) - SHOWN_PROBLEMS
        listed = "; ".join(problems[:SHOWN_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
        raise BadCheckpoint(f"{path}: {listed}")
