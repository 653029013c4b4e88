"""The tensors of safetensors files."""

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.limits import FILE_HEADER, HEADERS, check_limit

WEIGHTS = "model.safetensors"

MAPPED = 2**26
"""Bytes of a file that are read before its pages are released: they count as this process's memory until then."""

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Size of an entry, by storage type of weights."""

PACKED = {"U8": 1}
"""The same for storage types of packed weights."""


class _StoredTensor(NamedTuple):
    file: Path
    kind: str
    shape: list[int]


def _header_size(path: Path) -> int:
    """Return the size of a file's header as stated in the file, at most the size of the file."""
    try:
        with path.open("rb") as file:
            return min(int.from_bytes(file.read(8), "little"), path.stat().st_size)
    except OSError as error:
        raise BadCheckpoint(f"{path}: can't be read ({error})") from None


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError, ValueError) as error:
        raise BadCheckpoint(f"{path}: truncated or not a safetensors file ({error}); copy it again") from None


class Safetensors:
    """The tensors of safetensors files, with headers checked against the files' sizes before reading.

    Args:
        path: the path for messages.
        files: the files.

    Raises:
        BadCheckpoint: if a file is damaged, or its header is too large.
    """

    readable: Collection[str] = BYTES

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        self.path = path
        self._places: dict[str, list[_StoredTensor]] = {}
        sizes = {file: _header_size(file) for file in files}
        for file, size in sizes.items():
            check_limit(file, "bytes of header", size, FILE_HEADER)
        check_limit(path, "bytes of headers", sum(sizes.values()), HEADERS)
        for file in files:
            opened = _open(file)
            for name in opened.keys():  # noqa: SIM118 - no mapping
                entry = opened.get_slice(name)
                place = _StoredTensor(file, entry.get_dtype(), entry.get_shape())
                self._places.setdefault(name, []).append(place)
        self._opened: tuple[Path, Any] | None = None
        self._mapped = 0

    def names(self) -> Collection[str]:
        """Return the names of all tensors."""
        return self._places.keys()

    def files_of(self, name: str) -> list[Path]:
        """Return the files that hold a tensor."""
        return [place.file for place in self._places.get(name, [])]

    def shape(self, name: str) -> list[int]:
        """Return a tensor's shape."""
        return self._places[name][0].shape

    def kind(self, name: str) -> str:
        """Return the storage type of a tensor's entries."""
        return self._places[name][0].kind

    def read(self, name: str, dtype: np.dtype) -> np.ndarray:
        """Read a tensor into the host's memory."""
        file, kind, shape = self._places[name][0]
        if self._opened is None or self._opened[0] != file or self._mapped > MAPPED:
            self._opened, self._mapped = None, 0
            self._opened = file, _open(file)
        self._mapped += math.prod(shape) * (BYTES | PACKED)[kind]
        return self._opened[1].get_tensor(name).astype(dtype, copy=False)
