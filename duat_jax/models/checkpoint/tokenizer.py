"""A checkpoint's `tokenizer.json`, and calls into the tokenizers library that end in one error of ours."""

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
"""The name of what a panic in the library becomes: no subclass of `Exception`, and in no module to import from."""

_ONE_AT_A_TIME = threading.Lock()
"""Standard error is the whole process's: two threads may not exchange it at once."""


@contextmanager
def _standard_error_kept() -> Iterator[None]:
    """Hold back what is written to standard error below Python, and drop it if the block raises.

    A panic writes its backtrace there before it becomes an exception.
    """
    try:
        kept = os.dup(2)
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
            os.dup2(kept, 2)
            os.close(kept)
        written.seek(0)
        os.write(2, written.read())


@contextmanager
def one_error(what: str, kind: type[DuatError] = BadCheckpoint) -> Iterator[None]:
    """Turn whatever the tokenizers library raises, panics too, into one error of ours.

    Args:
        what: what was wrong, for the message.
        kind: the error that is raised.

    Raises:
        DuatError: naming it.

    Example:
        >>> with one_error("no tokenizer"):
        ...     Tokenizer.from_str("{}")
        Traceback (most recent call last):
        ...
        duat_jax.errors.BadCheckpoint: no tokenizer (...)
    """
    try:
        with _ONE_AT_A_TIME, _standard_error_kept():
            yield
    except BaseException as error:  # the library raises bare Exception
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        raise kind(f"{what} ({' '.join(str(error).split())[:200]})") from None


def read_tokenizer(file: Path) -> Tokenizer:
    """Return the tokenizer of a file, without truncation or padding.

    Args:
        file: a `tokenizer.json`.

    Raises:
        BadCheckpoint: if it is damaged or too large.
    """
    check_limit(file, "bytes", file.stat().st_size, TOKENIZER)
    with one_error(f"{file}: not a tokenizer"):
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.no_truncation()
        tokenizer.no_padding()
    return tokenizer
