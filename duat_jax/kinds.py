"""The kinds of results and of their parts, as files name them: each type says its own where it is defined."""

from collections.abc import Callable
from typing import TypeVar

Kind = TypeVar("Kind", bound=type)

TYPES: dict[str, type] = {}
"""The type of each kind."""

NAMES: dict[type, str] = {}
"""The kind of each type."""

OLD_NAMES: dict[str, str] = {}
"""The kind of a type by its module and name, which files of version 4 have."""


def kept_as(name: str, *places: str) -> Callable[[Kind], Kind]:
    """Return a decorator that says which kind a type is, so that files can keep it.

    Example:
        >>> @kept_as("pair")
        ... class Pair(tuple): ...
        >>> TYPES["pair"] is Pair, NAMES[Pair]
        (True, 'pair')
    """

    def decorate(type_of_kind: Kind) -> Kind:
        TYPES[name], NAMES[type_of_kind] = type_of_kind, name
        for place in (f"{type_of_kind.__module__}:{type_of_kind.__qualname__}", *places):
            OLD_NAMES[place] = name
        return type_of_kind

    return decorate
