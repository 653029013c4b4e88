"""Results in files: one file each, arrays as safetensors and everything else as JSON in its header."""

import dataclasses
import json
import math
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from duat_jax.errors import BadText, DuatError
from duat_jax.files import write_file

VERSION = 4
"""The version of the format and of the results' fields; what an older duat-jax couldn't read makes a new one."""

FORMAT = "duat-jax result"

TYPES = frozenset(
    f"duat_jax.{place}"
    for place in (
        *("attribution.result:Attribution", "in_context.parameters:Moved", "in_context.result:Ledger"),
        *("interpret.attention.result:AttentionScore", "interpret.attention.result:Source"),
        *("interpret.comparison:Compared", "interpret.contrast.result:Contrast", "interpret.images.result:ImageMaps"),
        *("interpret.explain.result:ActiveNeuron", "interpret.explain.result:Explanation"),
        *("interpret.graph.result:Graph", "interpret.graph.result:Moves", "interpret.graph.result:NeuronGroup"),
        *("interpret.graph.result:ReadNeuron", "interpret.intervene.result:Effect"),
        *("interpret.intervene.result:Intervention", "lora.result:Columns", "lora.result:Effect"),
        *("lora.result:LoraChange", "lora.result:Parts", "forms.completeness:Completeness"),
        *("inputs.images:SeenImage", "inputs.labels:Prediction", "models.targets.description:NamedOutput"),
        "models.vocabulary.token:Token",
        *("models.targets.description:TargetDescription", "transform.keys:Key", "transform.keys:Marked"),
        *("training.over_examples.result:Influence", "training.over_weights.result:WeightLedger"),
        *("weights.result:Flow", "weights.result:ModelDiff", "weights.result:RunAgain", "weights.result:UnitPart"),
    )
)
"""The types of results and of their parts, by module and name: no other is made from a file."""


def write_result(result: Any, path: Path | str) -> None:
    """Write a result to a file, completely or not at all.

    What a result computes only when it is asked, by its model, isn't kept.

    Args:
        result: the result.
        path: the file.

    Raises:
        DuatError: for a class of one's own, which couldn't be read again.
    """
    arrays: dict[str, np.ndarray] = {}
    head = {"format": FORMAT, "version": VERSION, "result": _written(result, arrays)}
    content = save(arrays, {"duat": json.dumps(head, ensure_ascii=False)})
    write_file(Path(path), content)


def read_result(path: Path | str) -> Any:
    """Read a result from a file.

    Args:
        path: a file that the `save` of a result wrote.

    Returns:
        The result. What it would compute by its model, such as an attention score's neurons, it doesn't have.

    Raises:
        BadText: if it is no such file, or one of another version.

    Example:
        >>> import tempfile
        >>> import duat_jax as duat
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     duat.explain(duat.load(), [5, 6, 7]).save(f"{folder}/result")
        ...     duat.open(f"{folder}/result").completeness.verdict
        'holds'
    """
    try:
        content = Path(path).read_bytes()
        length = int.from_bytes(content[:8], "little")
        head = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["duat"])
        format, version = head["format"], head["version"]
        if format == FORMAT and version != VERSION:
            remedy = "install a newer duat-jax to open it" if version > VERSION else "compute and save the result again"
            raise BadText(f"{path} has version {version}, and this duat-jax opens version {VERSION}: {remedy}")
        if format != FORMAT:
            raise KeyError(format)
        return _read(head["result"], load(content))
    except BadText:
        raise
    except OSError as error:
        raise BadText(f"can't read {str(path)!r}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError, OverflowError) as error:
        if content.lstrip()[:1] == b"{":
            raise BadText(f"{path} is JSON: duat.records.read(Path({str(path)!r}).read_text()) reads it") from None
        raise BadText(
            f"{path} is no file that a result's save wrote, or damaged ({type(error).__name__}): give another"
        ) from None


def _name(kind: type) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    if name not in TYPES:
        raise DuatError(f"a {kind.__qualname__} can't be kept in a file: save a result of duat_jax itself")
    return name


def _written(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value as JSON, its arrays put aside."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, str) and not hasattr(value, "_asdict")):
        return value
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if type(value) is float:  # a number of NumPy in float64 is one too, and keeps its dtype as an array
        return value if math.isfinite(value) else {"float": str(value)}
    if hasattr(value, "tolist"):  # an array, or one of its numbers
        array, name = np.ascontiguousarray(value).reshape(np.shape(value)), str(len(arrays))
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
    return kind(**{name: _read(part, arrays) for name, part in value["fields"].items()})


def _not_kept(*arguments: Any) -> Any:
    raise DuatError("this is computed by the model, which a file doesn't keep: ask the model again")


def _dtype(name: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def _type(name: str) -> Any:
    if name not in TYPES:
        raise KeyError(name)
    module, _, qualified = name.partition(":")
    return getattr(import_module(module), qualified)
