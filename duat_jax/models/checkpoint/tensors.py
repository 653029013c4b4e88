"""A checkpoint's tensors: every tensor is read, known not to belong to the model, or refused by name."""

import re
from collections.abc import Callable, Mapping

import jax
import numpy as np
from jax.typing import DTypeLike

from duat_jax.models.checkpoint.stored import StoredTensors
from duat_jax.processes import on_host


class Tensors:
    """A checkpoint's tensors, and the problems found while reading them.  Pickled files are never opened.

    Args:
        stored: the stored tensors.
        dtype: the dtype of the tensors that are read.
        prefix: the prefix of all names of the model, or of none; heads never have it.
        ignored: regular expression of names, without prefix, that don't belong to the model.
        heads: regular expression of names that are read and have no prefix.
        older: older ends of names, and the present ones; beginnings where they end with a dot.
        headers_only: whether only names, shapes and storage types are checked, and stand-ins are returned.
        progress: called with the number of tensors read so far and the number of all.
    """

    def __init__(
        self,
        stored: StoredTensors,
        dtype: DTypeLike,
        *,
        prefix: str,
        ignored: str,
        heads: str,
        older: Mapping[str, str],
        headers_only: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.stored = stored
        self.dtype = np.dtype(dtype)
        self.headers_only, self.progress = headers_only, progress
        self.problems: list[str] = []
        self.names: dict[str, str] = {}
        self.unread: set[str] = set()
        present_names = {full: _renamed(full, older) for full in sorted(stored.names())}
        prefixed = any(name.startswith(prefix) for name in present_names.values())
        for full, present in present_names.items():
            name = present if re.fullmatch(heads, present.removeprefix(prefix)) else present.removeprefix(prefix)
            if name in self.names:
                self.problems.append(f"tensors {self.names[name]} and {full} are both {name}: keep one of them")
                continue
            self.names[name] = full
            if re.fullmatch(ignored, name):
                continue
            self.unread.add(name)
            if prefixed and not present.startswith(prefix) and not re.fullmatch(heads, name):
                self.problems.append(f"tensor {full} has no prefix {prefix}, which other tensors have: rename it")
        self.wanted = len(self.unread)

    def numbers(self, pattern: str) -> set[int]:
        """Return the numbers of the layers that have a tensor."""
        return {int(match[1]) for name in self.names if (match := re.match(pattern, name))}

    def read(self, name: str, *shape: int | None) -> np.ndarray:
        """Read one tensor into the host's memory; return a stand-in if there is a problem."""
        self.ignore(name)
        if name not in self.names:
            self.problems.append(f"tensor {name} {_sizes(shape)} is missing")
            return self._stand_in(shape)
        full = self.names[name]
        actual, kind = self.stored.shape(full), self.stored.kind(full)
        if len(actual) != len(shape) or any(f < 1 or s not in (None, f) for s, f in zip(shape, actual, strict=True)):
            self.problems.append(f"tensor {name} has shape {actual}, but the configuration says {_sizes(shape)}")
            return self._stand_in(shape)
        if kind not in self.stored.readable:
            self.problems.append(f"tensor {name} is of {kind}, only {', '.join(self.stored.readable)} are supported")
            return self._stand_in(shape)
        if self.headers_only:
            return self._stand_in(shape)
        with np.errstate(over="ignore"):
            tensor = self.stored.read(full, self.dtype)
        if not np.isfinite(tensor).all():
            self.problems.append(f"tensor {name} has NaN or infinite entries in {self.dtype}")
        if self.progress is not None:
            self.progress(self.wanted - len(self.unread), self.wanted)
        return tensor

    def _stand_in(self, shape: tuple[int | None, ...]) -> np.ndarray:
        """Return a small array that can be split and transposed, so that loading finds all other problems too."""
        return np.zeros([3] * len(shape), self.dtype)

    def ignore(self, name: str) -> None:
        """Mark a tensor as read."""
        self.unread.discard(name)

    def ignore_copy(self, name: str, original: jax.Array | jax.ShapeDtypeStruct, of_name: str) -> None:
        """Mark a tensor as read if it is absent or equals another."""
        if not isinstance(original, jax.Array):  # the other one has a problem itself
            self.ignore(name)
        elif name in self.names and not np.array_equal(self.read(name, *original.shape), on_host(original)):
            self.problems.append(f"tensor {name} differs from {of_name}, but the configuration says they are tied")

    def all_problems(self) -> list[str]:
        """Return every problem, including tensors that nothing reads."""
        extra = [
            f"tensor {name} {self.stored.shape(self.names[name])} isn't part of this model"
            for name in sorted(self.unread)
        ]
        return self.problems + extra


def _renamed(name: str, older: Mapping[str, str]) -> str:
    """Return the present name of a tensor."""
    for old, new in older.items():
        if old.endswith(".") and name.startswith(old):
            return new + name.removeprefix(old)
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _sizes(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"
