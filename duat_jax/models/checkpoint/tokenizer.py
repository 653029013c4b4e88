"""A checkpoint's `tokenizer.json`, and calls into the tokenizers library that raise one error of this package."""

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer

from duat_jax.errors import BadCheckpoint, DuatError
from duat_jax.models.checkpoint.limits import TOKENIZER, check_limit

PANIC = "PanicException"
"""The name of the exception for a panic in the library, which is no subclass of `Exception` and can't be imported."""

_ONE_AT_A_TIME = threading.RLock()
"""Standard error belongs to the whole process: two threads may not replace it at once; one may in the middle of it."""


@contextmanager
def _standard_error_held() -> Iterator[None]:
    """Hold back output to standard error below Python, and drop it if the block raises."""
    # A panic writes its backtrace there before it becomes an exception.
    try:
        duplicate = os.dup(2)
    except OSError:
        yield
        return
    with tempfile.TemporaryFile() as written:
        if sys.stderr is not None:
            sys.stderr.flush()
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(duplicate, 2)
            os.close(duplicate)
        written.seek(0)
        os.write(2, written.read())


@contextmanager
def one_error(message: str, kind: type[DuatError] = BadCheckpoint) -> Iterator[None]:
    """Turn every error of the tokenizers library, panics included, into one error of this package.

    Example:
        >>> with one_error("no tokenizer"):
        ...     Tokenizer.from_str("{}")
        Traceback (most recent call last):
        ...
        duat_jax.errors.BadCheckpoint: no tokenizer (...)
    """
    try:
        with _ONE_AT_A_TIME, _standard_error_held():
            yield
    except BaseException as error:  # the library raises bare Exception
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        raise kind(f"{message} ({' '.join(str(error).split())[:200]})") from None


def read_tokenizer(file: Path) -> Tokenizer:
    """Read the tokenizer of a file, without truncation."""
    check_limit(file, "bytes", file.stat().st_size, TOKENIZER)
    with one_error(f"{file}: not a tokenizer"):
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.no_truncation()
    return tokenizer
