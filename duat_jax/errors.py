"""The errors of this package, for mistakes in the user's input."""


class DuatError(ValueError):
    """A mistake in the input; the message says what was wrong, where, and what to do."""


class UnsupportedProgram(DuatError):
    """A program, or a mark in it, that can't be followed."""


class NotAffine(DuatError):
    """A replayed function that isn't affine because a mark is missing."""


class BadCheckpoint(DuatError):
    """A checkpoint that can't be loaded or written."""


class BadText(DuatError):
    """A text, token or position that is invalid for a model."""


class NotFinite(DuatError):
    """A result that is NaN or infinite."""
