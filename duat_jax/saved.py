"""Results in files: one file each, arrays as safetensors and everything else as JSON in its header."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from duat_jax.errors import DuatError, InvalidInput, warn_caller
from duat_jax.files import path_of, write_file
from duat_jax.kinds import NAMES, OLD_NAMES, TYPES
from duat_jax.sealed import seal, unseal

VERSION = 6
"""The version of the format and of the results' fields; what an older duat-jax couldn't read makes a new one."""

WITHOUT_DIGEST = 4
"""The version whose files have no digest, and modules of types instead of kinds."""

FORMAT = "duat-jax result"

OLD_FIELDS = {
    "effect of a change": {"change": "edit"},
    "attribution": {"others": "references"},
    "contrast": {"others": "references"},
    "attention score": {"versus": "contrast"},
}
"""By kind, the name of a field by the one that older files have."""


def write_result(result: Any, path: Path | str) -> None:
    """Write a result to a file, completely or not at all."""
    # What a result computes only when it is asked, by its model, isn't kept.
    file, arrays = path_of(path, "a file for a result"), dict[str, np.ndarray]()
    head = {"format": FORMAT, "version": VERSION, "result": _written(result, arrays)}
    write_file(file, seal(arrays, head))


def read_result(path: Path | str) -> Any:
    """Read a result from a file; `duat.open` says what of, and knows every kind."""
    try:
        content = path_of(path, "a file that a result's save wrote").read_bytes()
    except OSError as error:
        raise InvalidInput(f"can't read {str(path)!r}: {error.strerror}") from None
    try:
        head, arrays, has_digest = unseal(content)
        if head["format"] != FORMAT:
            raise DuatError("has another format")
        if not WITHOUT_DIGEST <= (version := head["version"]) <= VERSION:
            remedy = "install a newer duat-jax to open it" if version > VERSION else "compute and save the result again"
            raise InvalidInput(f"{path} has version {version}, and this duat-jax opens version {VERSION}: {remedy}")
        if has_digest != (version > WITHOUT_DIGEST):
            raise DuatError("has a version and a digest that contradict each other")
        result = _read(head["result"], arrays)
    except InvalidInput:
        raise
    except Exception as error:  # a file that `save` didn't write may raise anything
        if content.lstrip()[:1] == b"{":
            raise InvalidInput(f"{path} is JSON: duat.schemas.read(Path({str(path)!r}).read_text()) reads it") from None
        reason = f"it {error}" if isinstance(error, DuatError) else type(error).__name__
        raise InvalidInput(
            f"{path} is no file that a result's save wrote, or damaged ({reason}): give another"
        ) from None
    if not has_digest:
        warn_caller(
            f"{path} was saved by an older duat-jax, without a digest: changes of it can't be seen; save it again"
        )
    return result


def _name(kind: type) -> str:
    if kind not in NAMES:
        raise DuatError(f"a {kind.__qualname__} can't be kept in a file: save a result of duat_jax itself")
    return NAMES[kind]


def _written(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value as JSON, its arrays put aside."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, str) and not hasattr(value, "_asdict")):
        return value
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if type(value) is float:  # a number of NumPy in float64 is one too, and keeps its dtype as an array
        return value if math.isfinite(value) else {"float": str(value)}
    if hasattr(value, "tolist"):  # an array, or one of its numbers
        array, name = np.asarray(value, order="C"), str(len(arrays))
        # What safetensors has no NumPy type for is kept as whole numbers of the same width.
        plain = array.dtype.kind in "fiub"
        arrays[name] = array if plain else array.view(f"u{array.itemsize}")
        return {"array": name} if plain else {"array": name, "dtype": array.dtype.name}
    if callable(value):
        return {"computed": True}
    if type(value) is tuple:
        return {"tuple": [_written(part, arrays) for part in value]}
    if type(value) is list:
        return [_written(part, arrays) for part in value]
    if isinstance(value, Mapping):
        items = [[_written(key, arrays), _written(part, arrays)] for key, part in value.items()]
        return {"items": items} if type(value) is dict else {"type": _name(type(value)), "items": items}
    fields = value._asdict() if hasattr(value, "_asdict") else _fields(value)
    return {"type": _name(type(value)), "fields": {name: _written(part, arrays) for name, part in fields.items()}}


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _read(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return the value that JSON stands for."""
    if isinstance(value, list):
        return [_read(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "bytes" in value:
        return bytes.fromhex(value["bytes"])
    if "computed" in value:
        return _not_kept
    if "array" in value:
        array = arrays[value["array"]][()]  # a number of an array without axes
        return array.view(_dtype(value["dtype"])) if "dtype" in value else array
    if "tuple" in value:
        return tuple(_read(part, arrays) for part in value["tuple"])
    kind = _type(value["type"]) if "type" in value else dict
    if "items" in value:
        return kind({_read(key, arrays): _read(part, arrays) for key, part in value["items"]})
    renamed = OLD_FIELDS.get(NAMES[kind], {})
    made = kind(**{renamed.get(name, name): _read(part, arrays) for name, part in value["fields"].items()})
    return made.judged_again() if hasattr(made, "judged_again") else made


def _not_kept(*arguments: Any) -> Any:
    raise DuatError("this is computed by the model, which a file doesn't keep: ask the model again")


def _dtype(name: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def _type(name: str) -> Any:
    return TYPES[OLD_NAMES.get(name, name)]
