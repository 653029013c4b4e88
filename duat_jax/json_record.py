"""Records: results as plain data for JSON, each kind with its own schema."""

from collections.abc import Mapping
from functools import reduce
from inspect import cleandoc
from operator import or_
from typing import Any

import msgspec

from duat_jax.errors import BadText


class Record(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"):
    """A result as plain data: what stands in a file of JSON, beside its `kind`.

    Args:
        version: of the format of this kind; a field that is renamed or removed makes a new one.
    """

    version: int


VERSION = 1


def plain(value: Any) -> Any:
    """Return a value as plain data: arrays as nested lists, named tuples and mappings as objects with text as keys.

    Args:
        value: numbers, texts, arrays, named tuples, mappings, lists, or what has a method `as_dict`.

    Example:
        >>> import numpy as np
        >>> plain({1: np.eye(2), "b": (None, 2.5)})
        {'1': [[1.0, 0.0], [0.0, 1.0]], 'b': [None, 2.5]}
    """
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if hasattr(value, "tolist"):  # arrays and their numbers
        return value.tolist()
    named = isinstance(value, tuple) and type(value).__str__ is not tuple.__str__  # a mark's key has a name
    if hasattr(value, "_asdict") and not named:
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple) and not named:
        return [plain(part) for part in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def as_record(kind: type[Record], result: Any, **fields: Any) -> dict[str, Any]:
    """Return a result as plain data with the fields of a record, validated.

    Args:
        kind: the record.
        result: what has an attribute for each field that isn't given.
        fields: fields by name.

    Raises:
        msgspec.ValidationError: if a field has another type than the record says.
    """
    info: Any = msgspec.inspect.type_info(kind)
    names = [field.encode_name for field in info.fields if field.required and field.name != "version"]
    values = {name: plain(fields[name] if name in fields else getattr(result, name)) for name in names}
    values |= {name: plain(value) for name, value in fields.items() if name not in values}
    return msgspec.to_builtins(msgspec.convert({"kind": info.tag, "version": VERSION, **values}, kind))


def read_record(content: str | bytes, kinds: tuple[type[Record], ...]) -> Record:
    """Read a record of one of several kinds from JSON.

    Args:
        content: the JSON.
        kinds: the kinds.

    Raises:
        BadText: if it isn't the JSON of a record, or one of a newer version.
    """
    try:
        values = msgspec.json.decode(content)
        version = values.get("version") if isinstance(values, dict) else None
        if isinstance(version, int) and version > VERSION:
            raise BadText(f"this JSON has version {version}, which is newer than {VERSION}: install a newer duat-jax")
        return msgspec.convert(values, reduce(or_, kinds))
    except msgspec.MsgspecError as error:
        raise BadText(f"this isn't the JSON of a result: {error}; give what --json or as_dict wrote") from None


def schema_of(kinds: tuple[type[Record], ...]) -> dict[str, object]:
    """Return the JSON schema of several kinds of records.

    Args:
        kinds: the kinds.
    """
    schemas, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for definition in definitions.values():
        # From Python 3.13 on docstrings come without their indentation.
        definition["description"] = cleandoc(definition["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "anyOf": list(schemas),
        "$defs": {name: _ordered(definition) for name, definition in definitions.items()},
    }


def _ordered(schema: Any) -> Any:
    """Return a schema with its alternatives in one order, which versions of msgspec give in different ones."""
    if isinstance(schema, dict):
        parts = {name: _ordered(part) for name, part in schema.items()}
        return parts | ({"anyOf": sorted(parts["anyOf"], key=str)} if "anyOf" in parts else {})
    return [_ordered(part) for part in schema] if isinstance(schema, list) else schema
