"""Define the errors of the symbolic layer, each with the fault and the remedy, and the warning of an old name."""

from typing import Any
from warnings import warn


class SymbolicError(ValueError):
    """Raised if a derivation isn't possible; the message says why and what to do."""


class ShapeMismatch(SymbolicError):
    """Raised if the shapes of two expressions don't fit, or a symbol is used with two shapes."""


class NumbersDiffer(SymbolicError):
    """Raised if the numbers of a function aren't those of the symbols that are said to describe it."""


def in_one_line(value: Any) -> str:
    """Return how something is written, in one line of at most 100 characters, for a message."""
    written = " ".join(repr(value).split())
    return written if len(written) <= 100 else f"{written[:99]}…"


def warn_renamed(old: str, new: str) -> None:
    """Warn at the line that used an old name, which will be gone with the next release."""
    warn(f"{old} is called {new} now; the old name goes with the next release", FutureWarning, stacklevel=3)
