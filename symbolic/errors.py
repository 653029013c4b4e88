"""Define the errors of the symbolic layer, each with the fault and the remedy, and the warning of an old name."""

from warnings import warn


class SymbolicError(ValueError):
    """Raised if a derivation isn't possible; the message says why and what to do."""


class ShapeMismatch(SymbolicError):
    """Raised if the shapes of two expressions don't fit, or a symbol is used with two shapes."""


class NumbersDiffer(SymbolicError):
    """Raised if the numbers of a function aren't those of the symbols that are said to describe it."""


def warn_renamed(old: str, new: str) -> None:
    """Warn at the line that used an old name, which will be gone with the next release."""
    warn(f"{old} is called {new} now; the old name goes with the next release", FutureWarning, stacklevel=3)
