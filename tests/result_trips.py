"""Round trips of results of every kind: what this package and other programs read of their files and their JSON."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
from safetensors import safe_open

import duat_jax as duat
from tests.every_result import result_of

DTYPES = ("float32", "bfloat16", "float16", "float64")
"""The dtypes of the model that is asked, or of the arrays."""

ARRAYS = (np.ndarray, np.generic, jax.Array)
"""Arrays and their numbers, which a file keeps with their dtype."""


def trips(kind: type, dtype: str, folder: Path) -> dict[str, str]:
    """Return the cells of a kind of result, by the form and by what reads it.

    Args:
        kind: the class of the result.
        dtype: the dtype of the model that is asked, or of the arrays.
        folder: where the files are written.
    """
    result, file, again = result_of(kind, dtype), folder / "result", folder / "again"
    result.save(file)
    opened, text, plain = duat.open(file), result.to_json(), result.as_dict()
    opened.save(again)
    own = [integers(leaf) for leaf in leaves(result) if isinstance(leaf, ARRAYS)]
    return {
        "saved result, opened again": compared([*leaves(result)], [*leaves(opened)]),
        "saved result, opened and saved again": compared([file.read_bytes()], [again.read_bytes()]),
        "saved result, read by safetensors": compared(own, by_safetensors(file)),
        "saved result, read by NumPy": compared(own, by_numpy(file)),
        "JSON of a result, read by msgspec": compared([*leaves(plain)], [*leaves(msgspec.json.decode(text))]),
        "JSON of a result, read as a record": compared(
            [*leaves(plain)], [*leaves(msgspec.to_builtins(duat.schemas.read(text)))]
        ),
    }


def leaves(value: Any) -> Iterator[Any]:
    """Yield the types of containers and the values in them, without the functions, which no file keeps.

    Args:
        value: a result, a part of it, or plain data.
    """
    if callable(value):
        return
    fields = value._asdict() if hasattr(value, "_asdict") else vars_of(value)
    if fields is not None or isinstance(value, Mapping | list | tuple):
        yield type(value)
    if fields is not None or isinstance(value, Mapping):
        for item in (value if fields is None else fields).items():
            yield from leaves(item)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def vars_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass, and nothing for any other value.

    Args:
        value: the value.
    """
    if not dataclasses.is_dataclass(value):
        return None
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def compared(ours: list[Any], theirs: list[Any]) -> str:
    """Return the cell of two lists of values: equal, or the first difference.

    Args:
        ours: the values that were written.
        theirs: those that were read.
    """
    if len(ours) != len(theirs):
        return f"differs: {len(theirs)} values in the place of {len(ours)}"
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, ARRAYS):
            a, b = np.asarray(one), np.asarray(other)
            same = (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        else:
            same = type(one) is type(other) and (one == other or (one != one and other != other))
        if not same:
            return f"differs: {other!r} in the place of {one!r}"
    return "equal"


def integers(value: Any) -> np.ndarray:
    """Return the bits of numbers as whole numbers of the same width.

    Args:
        value: an array, or one of its numbers.
    """
    array = np.asarray(value, order="C")
    return array.view(f"u{array.itemsize}")


def by_safetensors(file: Path) -> list[np.ndarray]:
    """Return the bits of the arrays of a file as the library of safetensors reads them, in the file's numbering.

    Args:
        file: the file.
    """
    with safe_open(file, framework="np") as opened:
        return [integers(opened.get_tensor(name)) for name in sorted(opened.keys(), key=int)]


def by_numpy(file: Path) -> list[np.ndarray]:
    """Return the same as NumPy reads them at the places that the file's header states.

    Args:
        file: the file.
    """
    content = file.read_bytes()
    length = int(np.frombuffer(content, "<u8", 1)[0])
    header = json.loads(content[8 : 8 + length])
    arrays = []
    for name in sorted(header.keys() - {"__metadata__"}, key=int):
        begin, end = header[name]["data_offsets"]
        width = int("".join(filter(str.isdigit, header[name]["dtype"])) or 8) // 8  # BOOL has a byte
        bits = np.frombuffer(content[8 + length + begin : 8 + length + end], f"<u{width}")
        arrays.append(bits.reshape(header[name]["shape"]))
    return arrays
