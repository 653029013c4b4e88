"""A journal: pieces of long work, kept as they are finished, so that a killed run goes on where it was."""

import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np

from duat_jax.errors import BadText, NotFinite


class Journal:
    """Finished pieces of one piece of work, by name, a line of JSON each; without a file nothing is kept.

    The first line holds what the work is: another work's journal isn't taken for this one's.

    Args:
        path: the file; it is begun where there is none.
        work: everything that the results depend on, as plain data.

    Raises:
        BadText: if the file holds other work, or is no journal.

    Example:
        >>> journal = Journal(None, {"seed": 0})
        >>> journal.once("the first piece", lambda: {"loss": 2.5})
        {'loss': 2.5}
    """

    def __init__(self, path: Path | None, work: dict[str, Any]) -> None:
        self._path = path
        self._finished: dict[str, Any] = {}
        work = json.loads(json.dumps(work))
        if path is None:
            return
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        # A line that has no end was being written when the run was killed.
        whole = [line for line in lines if line.endswith(b"\n")]
        try:
            header, *pieces = (json.loads(line) for line in whole) if whole else (work,)
            self._finished = {piece["name"]: piece["found"] for piece in pieces}
        except (ValueError, TypeError, KeyError):
            raise BadText(f"{path} is no journal of finished work: give another file") from None
        # The first line is written at once with the file: one that has no end is none of ours.
        if header != work or (lines and not whole):
            raise BadText(f"{path} holds other work than this one: give another file, or remove it")
        if whole != lines or not whole:
            _write(path, b"".join(whole) or _line(work))

    def __contains__(self, name: str) -> bool:
        return name in self._finished

    def once(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return a piece, computed and kept if it isn't there yet.

        Args:
            name: which one.
            compute: returns it as plain data.

        Raises:
            NotFinite: if it has a number that is NaN or infinite.
        """
        if name in self._finished:
            return self._finished[name]
        found = compute()
        try:
            line = _line({"name": name, "found": found})
        except ValueError:
            raise NotFinite(f"{name} has numbers that are NaN or infinite") from None
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        self._finished[name] = found
        return found


def fingerprint(tree: Any, *settings: Any) -> str:
    """Return a text that tells pytrees of arrays apart: other numbers, shapes, dtypes or names have another one.

    Args:
        tree: the pytree, such as a model's parameters.
        *settings: what else the results depend on, such as a model's configuration or a tokenizer's text; two that
            print alike count as the same.

    Example:
        >>> fingerprint({"a": 1.0}) == fingerprint({"a": 1.0}), fingerprint({"a": 1.0}) == fingerprint({"b": 1.0})
        (True, False)
        >>> fingerprint({"a": 1.0}, "gelu") == fingerprint({"a": 1.0}, "relu")
        False
    """
    digest = sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    for setting in settings:
        digest.update(sha256(repr(setting).encode()).digest())
    return digest.hexdigest()


def _line(data: Any) -> bytes:
    return (json.dumps(data, allow_nan=False) + "\n").encode()


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(content)
    temporary.replace(path)
