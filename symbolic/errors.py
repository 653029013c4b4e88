"""Define the errors of the symbolic layer; each names the fault and the remedy."""


class SymbolicError(ValueError):
    """Raised if a derivation isn't possible; the message says why and what to do."""


class ShapeMismatch(SymbolicError):
    """Raised if the shapes of two expressions don't fit, or a symbol is used with two shapes."""


class NumbersDiffer(SymbolicError):
    """Raised if the numbers of a function aren't those of the symbols that are said to describe it."""
