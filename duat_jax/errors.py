"""Every error that this package raises for something the user can mend."""


class DuatError(ValueError):
    """A mistake in the input; its message says what was wrong, where, and what to do."""


class UnsupportedProgram(DuatError):
    """A mark stands where its value can't be followed."""


class NotAffine(DuatError):
    """The replayed function isn't affine: a mark is missing."""


class BadCheckpoint(DuatError):
    """A checkpoint directory can't be loaded."""


class BadText(DuatError):
    """A text, token or position can't be explained with this model."""


class NotFinite(DuatError):
    """A number that was asked for is NaN or infinite."""
