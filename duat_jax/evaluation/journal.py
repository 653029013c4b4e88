"""Journal of finished results of a long computation, from which an interrupted run resumes."""

import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np

from duat_jax.errors import InvalidInput, NotFinite, warn_caller
from duat_jax.files import write_file
from duat_jax.sealed import digest_of


class Journal:
    """Finished results of one computation, by name, one line of JSON each; without a file nothing is stored.

    The first line identifies the computation, so that the journal of another one is refused; every other line has a
    digest of itself and of the first one. Lines of an older version have none, and are read with a warning.

    Args:
        path: the file; it is created if absent.
        work: all settings that the results depend on, as plain data.

    Raises:
        InvalidInput: if the file holds other work, isn't a journal, or a line was changed or is of another journal.

    Example:
        >>> journal = Journal(None, {"seed": 0})
        >>> journal.once("the first piece", lambda: {"loss": 2.5})
        {'loss': 2.5}
    """

    def __init__(self, path: Path | None, work: dict[str, Any]) -> None:
        self._path = path
        self._finished: dict[str, Any] = {}
        work = json.loads(json.dumps(work))
        self._digest = digest_of(work)
        if path is None:
            return
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        # A line without an end was being written when the run was killed.
        whole = [line for line in lines if line.endswith(b"\n")]
        try:
            header, *pieces = (json.loads(line) for line in whole) if whole else (work,)
            digests = [piece.pop("digest", None) for piece in pieces]
            self._finished = {piece["name"]: piece["found"] for piece in pieces}
            if any(len(piece) > 2 for piece in pieces):  # such as a digest by another name
                raise KeyError
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InvalidInput(f"{path} isn't a journal of finished work: give another file") from None
        # The file is created with its first line: a file without a complete first line isn't a journal.
        if header != work or (lines and not whole):
            raise InvalidInput(
                f"{path} holds other work, of another model or other settings: give another file, or remove it"
            )
        for number, (piece, digest) in enumerate(zip(pieces, digests, strict=True), 2):
            if digest is not None and digest != digest_of([self._digest, piece]):
                raise InvalidInput(f"line {number} of {path} was changed, or is of another journal: remove this line")
        if None in digests:
            warn_caller(f"{path} has lines of an older duat-jax, without a digest: changes of them can't be seen")
        if whole != lines or not whole:
            write_file(path, b"".join(whole) or _line(work))

    def __contains__(self, name: str) -> bool:
        return name in self._finished

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return a result, computed and stored if it isn't in the journal.

        Args:
            name: the name of the result.
            compute: returns the result as plain data.

        Raises:
            NotFinite: if the result has a number that is NaN or infinite.
        """
        if name in self._finished:
            return self._finished[name]
        result = compute()
        try:
            piece = {"name": name, "found": result}
            line = _line(piece | {"digest": digest_of([self._digest, piece])})
        except ValueError:
            raise NotFinite(f"{name} has numbers that are NaN or infinite") from None
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        self._finished[name] = result
        return result


def fingerprint(tree: Any, *settings: Any) -> str:
    """Return a hash of a pytree of arrays, by its numbers, shapes, dtypes and names.

    Example:
        >>> fingerprint({"a": 1.0}) == fingerprint({"a": 1.0}), fingerprint({"a": 1.0}) == fingerprint({"b": 1.0})
        (True, False)
        >>> fingerprint({"a": 1.0}, "gelu") == fingerprint({"a": 1.0}, "relu")
        False
    """
    digest = sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key):
            digest.update(f"{jax.random.key_impl(leaf)}\n".encode())
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    for setting in settings:
        digest.update(sha256(repr(setting).encode()).digest())
    return digest.hexdigest()


def _line(data: Any) -> bytes:
    return (json.dumps(data, allow_nan=False) + "\n").encode()
