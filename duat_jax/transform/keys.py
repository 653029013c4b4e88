"""Identifiers of marks, and mappings from them to values."""

import re
from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

import jax

from duat_jax.errors import DuatError
from duat_jax.kinds import kept_as

Value = TypeVar("Value")


def range_of(scope: str) -> tuple[str, range] | None:
    """Return the numbers that a scope names as a slice does, and what stands before them; `None` if it names none.

    Example:
        >>> range_of("layers.0:6:2"), range_of("layers.3")
        (('layers.', range(0, 6, 2)), None)
    """
    match = re.fullmatch(r"(.*\.)(\d+):(\d+)(?::([1-9]\d*))?", scope)
    return None if match is None else (match[1], range(int(match[2]), int(match[3]), int(match[4] or 1)))


def has_slice(scope: str) -> bool:
    """Return whether a slice stands in a scope's name, also one that `range_of` can't read.

    Example:
        >>> has_slice("layer0:4"), has_slice("layers.:4"), has_slice("step 1: mix")
        (True, True, False)
    """
    return re.search(r"\d\s*:\s*-?\d|\.-?\d*:[-:\d]*$", scope) is not None


def of_step(scopes: tuple[str, ...], step: int) -> tuple[str, ...]:
    """Return scopes with each that names numbers replaced by the one that it names in a step of a scan.

    Example:
        >>> of_step(("layers.1:6:2", "mlp"), 2)
        ('layers.5', 'mlp')
    """
    named = [(scope, range_of(scope)) for scope in scopes]
    return tuple(scope if stacked is None else f"{stacked[0]}{stacked[1][step]}" for scope, stacked in named)


@kept_as("key")
class Key(NamedTuple):
    """The identifier of a mark: its scope, name and number.

    Args:
        scope: the `jax.named_scope`s around it, outermost first.
        name: its own name.
        number: counter of the marks of one kind, scope and name, from 0, in program order.

    Example:
        >>> str(Key(("layers.3",), "mlp", 0)), str(Key((), "mlp", 1))
        ('layers.3.mlp', 'mlp[1]')
    """

    scope: tuple[str, ...]
    name: str
    number: int

    @property
    def path(self) -> str:
        """The scope and the name, joined by dots."""
        return ".".join((*self.scope, self.name))

    @property
    def layer(self) -> int | None:
        """The layer in which it stands; none outside of all layers."""
        layers = (scope.removeprefix("layers.") for scope in self.scope if scope.startswith("layers."))
        return next((int(layer) for layer in layers if layer.isdecimal()), None)

    def __str__(self) -> str:
        return f"{self.path}[{self.number}]" if self.number else self.path


class Site(NamedTuple):
    """One mark of a program: its kind and its key.

    Args:
        kind: its role: `"hold"`, `"offset"`, `"stream"`, `"point"`, or `"pre_activation"`, `"activation"` or
            `"term_output"` of a term.
        key: its identifier.
    """

    kind: str
    key: Key


class Occurrence(NamedTuple):
    """One occurrence of a mark: the mark, and the steps of the scans around it.

    Args:
        site: the mark.
        iteration: the step of each scan around it; empty outside of scans.
    """

    site: Site
    iteration: tuple[int, ...]

    def __str__(self) -> str:
        return str(self.site.key) + "".join(f"@{step}" for step in self.iteration)


@kept_as("marked")
@jax.tree_util.register_pytree_node_class
class Marked(Mapping[Key, Value], Generic[Value]):
    """Mapping from the keys of marks to values, in program order.

    A value is found by its `Key`; by a name that only one mark has, `marked["mlp"]`; by scope and name,
    `marked["layers.3.mlp"]`; by its number among equals, `marked["mlp[1]"]`.

    Args:
        values: the values by key.

    Example:
        >>> marked = Marked({Key(("layers.0",), "mlp", 0): 1.0, Key(("layers.1",), "mlp", 0): 2.0})
        >>> marked["layers.1.mlp"]
        2.0
    """

    def __init__(self, values: Mapping[Key, Value]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: "Key | str") -> Value:
        if isinstance(key, Key) and key in self._values:
            return self._values[key]
        matches = self._matches(key)
        if len(matches) == 1:
            return self._values[matches[0]]
        if matches:
            some = ", ".join(f"{k.path}[{k.number}]" for k in matches[:6])
            raise DuatError(f"{len(matches)} marks are called {str(key)!r}: choose one of {some}")
        existing = ", ".join(dict.fromkeys(k.path for k in self._values)) or "none at all"
        raise KeyError(f"no mark is called {str(key)!r}; there are {existing}")

    def _matches(self, name: object) -> list[Key]:
        full = [key for key in self._values if name in (key.path, f"{key.path}[{key.number}]")]
        return full or [key for key in self._values if name == key.name]

    def __contains__(self, key: object) -> bool:
        return key in self._values or bool(self._matches(key))

    def __iter__(self) -> Iterator[Key]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Marked({{{', '.join(f'{str(key)!r}: {value!r}' for key, value in self._values.items())}}})"

    def tree_flatten(self) -> tuple[tuple[Value, ...], tuple[Key, ...]]:
        """Return values and keys, for JAX."""
        return tuple(self._values.values()), tuple(self._values)

    @classmethod
    def tree_unflatten(cls, keys: tuple[Key, ...], values: tuple[Value, ...]) -> "Marked[Value]":
        """Rebuild the mapping, for JAX.

        Args:
            keys: its keys.
            values: its values.
        """
        return cls(dict(zip(keys, values, strict=True)))
