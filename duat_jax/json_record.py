"""Records: results as plain data for JSON, each kind with its own schema."""

import re
from collections.abc import Mapping
from functools import reduce
from inspect import cleandoc
from operator import or_
from typing import Any, ClassVar

import msgspec

from duat_jax.errors import InvalidInput


class Record(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"):
    """A result as plain data: what stands in a file of JSON, beside its `kind`.

    Args:
        version: of the format of this kind; a field that is renamed, removed or of another type makes a new one.
    """

    VERSION: ClassVar[int] = 1

    version: int


def plain(value: Any) -> Any:
    """Return a value as plain data: arrays as nested lists, named tuples and mappings as objects with text as keys.

    Example:
        >>> import numpy as np
        >>> plain({1: np.eye(2), "b": (None, 2.5)})
        {'1': [[1.0, 0.0], [0.0, 1.0]], 'b': [None, 2.5]}
    """
    if isinstance(value, str):
        return str(value)  # a token is one
    if hasattr(value, "as_dict"):
        return plain(value.as_dict())
    if hasattr(value, "tolist"):  # arrays and their numbers
        return value.tolist()
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    named = isinstance(value, tuple) and type(value).__str__ is not tuple.__str__  # a mark's key has a name
    if hasattr(value, "_asdict") and not named:
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple) and not named:
        return [plain(part) for part in value]
    return value if isinstance(value, int | float | None) else str(value)


def fields_of(kind: type[msgspec.Struct], result: Any, **fields: Any) -> dict[str, Any]:
    """Return the fields of a record or of a part of one, by name: attributes of a result where none is given."""
    info: Any = msgspec.inspect.type_info(kind)
    names = [field.encode_name for field in info.fields if field.required and field.name != "version"]
    return {name: fields[name] if name in fields else getattr(result, name) for name in names} | fields


def as_record(kind: type[Record], result: Any, **fields: Any) -> dict[str, Any]:
    """Return a result as plain data with the fields of a record, validated."""
    values = {name: plain(value) for name, value in fields_of(kind, result, **fields).items()}
    tag = kind.__struct_config__.tag
    return msgspec.to_builtins(msgspec.convert({"kind": tag, "version": kind.VERSION, **values}, kind))


def read_record(content: str | bytes, kinds: tuple[type[Record], ...]) -> Record:
    """Read a record of one of several kinds from JSON."""
    try:
        values = msgspec.json.decode(content)
        kind, version = (values.get("kind"), values.get("version")) if isinstance(values, dict) else (None, None)
        known = {each.__struct_config__.tag: each.VERSION for each in kinds}.get(kind)
        if known is not None and isinstance(version, int) and version != known:
            remedy = "install a newer duat-jax" if version > known else "write it again with this duat-jax"
            raise InvalidInput(f"this JSON has version {version} of the kind {kind!r}, not version {known}: {remedy}")
        return msgspec.convert(values, reduce(or_, kinds))
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"this isn't the JSON of a result: {error}; give what --json or as_dict wrote") from None


def schema_of(kinds: tuple[type[Record], ...]) -> dict[str, object]:
    """Return the JSON schema of several kinds of records."""
    schemas, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    bases = {kind.__name__: kind.__mro__ for kind in kinds}
    for name, definition in definitions.items():
        definition["description"], fields = _described(definition["description"])
        for base in bases.get(name, ()):
            fields = _described(base.__doc__ or "")[1] | fields
        for field, described in definition["properties"].items():
            described["description"] = "the kind of record." if field == "kind" else fields[field]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "anyOf": list(schemas),
        "$defs": {name: _ordered(definition) for name, definition in definitions.items()},
    }


def _described(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring before its list of fields, and the text of each field."""
    text, _, fields = cleandoc(docstring).partition("\n\nArgs:\n")  # until Python 3.12 docstrings are indented
    pairs = (field.partition(":") for field in re.split(r"^ {4}(?=\w)", fields, flags=re.MULTILINE)[1:])
    return " ".join(text.split()), {name: " ".join(described.split()) for name, _, described in pairs}


def _ordered(schema: Any) -> Any:
    """Return a schema with its alternatives in one order, which versions of msgspec give in different ones."""
    if isinstance(schema, dict):
        parts = {name: _ordered(part) for name, part in schema.items()}
        return parts | ({"anyOf": sorted(parts["anyOf"], key=str)} if "anyOf" in parts else {})
    return [_ordered(part) for part in schema] if isinstance(schema, list) else schema
