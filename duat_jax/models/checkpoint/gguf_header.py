"""The header of a GGUF file: metadata and places of tensors, with all lengths checked against the file's size.

It is read here and not by the `gguf` library, whose reader makes arrays of every token, which takes seconds.  The
library's tables of formats, names and quantisation are used.
"""

import math
import mmap
import struct
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.limits import GGUF_HEADER, GGUF_KEYS, GGUF_STRINGS, GGUF_TENSORS, check_limit
from duat_jax.models.checkpoint.problems import quoted, raise_problems

VERSIONS = (2, 3)

_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The codes of the `struct` module for the format's types of numbers."""

_STRING, _ARRAY = 8, 9


class TensorPlace(NamedTuple):
    """The place of a tensor in a file, and its storage type.

    Args:
        kind: the storage type of its entries.
        shape: its shape, rows first.
        start: its first byte.
        size: its number of bytes.
    """

    kind: gguf.GGMLQuantizationType
    shape: list[int]
    start: int
    size: int


class Header(NamedTuple):
    """The metadata of a file, and the places of its tensors.

    Args:
        metadata: values by key; arrays of numbers as arrays, of strings as lists.
        places: the place of each tensor, by name.
    """

    metadata: dict[str, Any]
    places: dict[str, TensorPlace]


class _Bytes:
    """The bytes of a file, read from the beginning."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at, self.strings = path, data, 0, 0
        self.end = min(len(data), GGUF_HEADER)

    def skip(self, size: int) -> int:
        """Return the position of the next bytes, and advance beyond them."""
        start = self.at
        if size > self.end - start:
            if size <= len(self.data) - start:
                check_limit(self.path, "bytes before its tensors", start + size, GGUF_HEADER)
            raise ValueError(f"at byte {start} of {len(self.data)} it announces {size} more bytes")
        self.at += size
        return start

    def number(self, code: str) -> Any:
        return struct.unpack_from("<" + code, self.data, self.skip(struct.calcsize(code)))[0]

    def string(self) -> str:
        size = self.number("Q")
        start = self.skip(size)
        return self.data[start : start + size].decode()

    def value(self) -> Any:
        kind = self.number("I")
        if kind == _STRING:
            return self.string()
        if kind in _CODES:
            return self.number(_CODES[kind])
        if kind != _ARRAY:
            raise ValueError(f"at byte {self.at} it announces a value of type {kind}")
        kind_of_items, count = self.number("I"), self.number("Q")
        if kind_of_items == _STRING:
            self.strings += count
            check_limit(self.path, "strings", self.strings, GGUF_STRINGS)
            return [self.string() for _ in range(count)]
        if kind_of_items not in _CODES:
            raise ValueError(f"at byte {self.at} it announces an array of type {kind_of_items}")
        dtype = np.dtype(_CODES[kind_of_items]).newbyteorder("<")
        return np.frombuffer(self.data, dtype, count, self.skip(count * dtype.itemsize))


def read_header(path: Path) -> Header:
    """Read the header of a GGUF file."""
    try:
        with path.open("rb") as file:
            data = _Bytes(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if data.data[data.skip(4) : 4] != b"GGUF" or data.number("I") not in VERSIONS:
            raise ValueError(f"it doesn't begin with GGUF and version {' or '.join(map(str, VERSIONS))}")
        tensors, values = data.number("Q"), data.number("Q")
        check_limit(path, "tensors", tensors, GGUF_TENSORS)
        check_limit(path, "keys", values, GGUF_KEYS)
        pairs = [(data.string(), data.value()) for _ in range(values)]
        infos = [_info(data) for _ in range(tensors)]
    except BadCheckpoint:
        raise
    except (OSError, ValueError) as error:
        raise BadCheckpoint(f"{path}: truncated or not a GGUF file ({error}); copy it again") from None
    metadata, problems = dict(pairs), [f"{quoted(name)} is given twice" for name in _doubled(pairs)]
    alignment = metadata.get("general.alignment", gguf.GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        problems.append(f"general.alignment = {quoted(alignment)} must be a positive whole number")
        alignment = 1
    parts = metadata.get("split.count", 1)
    if not isinstance(parts, int) or parts != 1:
        problems.append("it is one part of several: merge them with llama.cpp's gguf-split --merge")
    begin = -(-data.at // alignment) * alignment
    problems += [f"tensor {quoted(name)} is given twice" for name in _doubled(infos)]
    places: dict[str, TensorPlace] = {}
    for name, (kind, shape, offset) in infos:
        try:
            places[name] = _place(kind, shape, begin + offset)
        except ValueError as error:
            problems.append(f"tensor {quoted(name)} {error}")
    problems += _misplaced(places, len(data.data))
    raise_problems(path, problems)
    return Header(metadata, places)


def _info(data: _Bytes) -> tuple[str, tuple[int, list[int], int]]:
    name, rank = data.string(), data.number("I")
    shape = [data.number("Q") for _ in range(rank)][::-1]
    return name, (data.number("I"), shape, data.number("Q"))


def _doubled(pairs: list[tuple[str, Any]]) -> list[str]:
    return [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]


def _place(kind: int, shape: list[int], start: int) -> TensorPlace:
    try:
        quantisation = gguf.GGMLQuantizationType(kind)
    except ValueError:
        raise ValueError(f"is stored in quantisation {kind}, which isn't known: convert the model again") from None
    entries, size = gguf.GGML_QUANT_SIZES[quantisation]
    if not shape or min(shape) < 1 or shape[-1] % entries:
        raise ValueError(
            f"has shape {quoted(shape)}, but {quantisation.name} has rows of a multiple of {entries} entries"
        )
    return TensorPlace(quantisation, shape, start, math.prod(shape) // entries * size)


def _misplaced(places: dict[str, TensorPlace], size: int) -> list[str]:
    """Return the tensors that reach beyond the end of the file or overlap."""
    problems, last, before, beyond = [], 0, "", []
    for name, place in sorted(places.items(), key=lambda item: item[1].start):
        end = place.start + place.size
        if end > size:
            beyond.append(f"tensor {quoted(name)} ends at byte {end}, but the file has {size}")
        if place.start < last:
            problems.append(f"tensor {quoted(name)} begins inside tensor {quoted(before)}")
        last, before = end, name
    if beyond:
        more = len(beyond) - 1
        and_more = f", and {more} of the {len(places)} tensors after it are missing too" if more else ""
        problems.append(f"{beyond[0]}{and_more}: copy it again")
    return problems
