"""Errors that name what is wrong and what to do."""


class SymbolicError(ValueError):
    """What was asked for can't be derived; the message says why and what to do."""


class ShapeMismatch(SymbolicError):
    """Two expressions whose shapes don't fit, or a symbol that is used with two shapes."""


class NumbersDiffer(SymbolicError):
    """A function whose numbers aren't those of the symbols that are said to describe it."""
