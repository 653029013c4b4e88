"""Fields of a JSON object, read one by one as the types that they must have."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from duat_jax.models.checkpoint.problems import quoted

ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}
"""Hugging Face's names of the activations in `duat_jax.nn.ACTIVATIONS`."""

LARGEST = 2**31 - 1
"""The largest size that a field may have."""

MOST_PARTS = 10_000
"""The largest number of layers or experts, so that an absurd number takes no memory."""


class JsonFields:
    """The fields of an object in JSON: each is read as the type it must have, or its problem noted.

    Args:
        values: the parsed object.
        path: the prefix of the fields' names in messages.
    """

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self.values = dict(values)
        self.path = path
        self.unread = set(values)
        self.problems: list[str] = []

    def _take(self, name: str, default: Any = None) -> Any:
        self.unread.discard(name)
        return self.values.get(name, default)

    def _problem(self, name: str, problem: str) -> None:
        self.problems.append(f"{self.path}{name} {problem}")

    def has(self, name: str) -> bool:
        """Return whether a field is present and isn't null.

        Args:
            name: the field.
        """
        return self.values.get(name) is not None

    def rename(self, name: str, to: str) -> None:
        """Read a field under another name; both may be given if they are equal.

        Args:
            name: the other name.
            to: the name that is read.
        """
        value = self._take(name)
        if value is None:
            return
        if self.values.get(to) is None:
            self.values[to] = value
        if self.values[to] != value:
            self._problem(name, f"= {quoted(value)} differs from {to} = {quoted(self.values[to])}")

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """Return a whole number.

        Args:
            name: the field.
            default: the value of an absent or null field; without it the field is required.
            least: the smallest allowed value.
        """
        value = self._take(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST:
            kind = "positive whole number" if least else "whole number from 0"
            self._problem(name, f"must be a {kind} up to {LARGEST}, not {quoted(value)}")
            return 1
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers, empty where the field is absent or null.

        Args:
            name: the field.
        """
        value = self._take(name)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in value):
            return tuple(value)
        self._problem(name, f"must be whole numbers, not {quoted(value)}")
        return ()

    def per_layer(self, name: str, layers: int, default: int | None = None) -> tuple[int, ...]:
        """Return a positive whole number for each layer, from a list or one number for all.

        Args:
            name: the field.
            layers: number of layers.
            default: the value of an absent or null field; without it the field is required.
        """
        if not isinstance(self.values.get(name), list):
            return (self.integer(name, default),) * layers
        numbers = self.integers(name)
        if len(numbers) == layers and all(1 <= number <= LARGEST for number in numbers):
            return numbers
        self._problem(name, f"must be a positive whole number for each of {layers} layers, not {quoted(numbers)}")
        return (1,) * layers

    def pair(self, name: str, default: int) -> tuple[int, int]:
        """Return a height and a width, from two positive whole numbers or one for both.

        Args:
            name: the field.
            default: the value of an absent or null field.
        """
        value = self._take(name)
        sizes = value if isinstance(value, list) else [default if value is None else value] * 2
        if len(sizes) == 2 and all(type(v) is int and 1 <= v <= LARGEST for v in sizes):
            return sizes[0], sizes[1]
        self._problem(name, f"must be a positive whole number up to {LARGEST}, or two, not {quoted(value)}")
        return default, default

    def optional(self, name: str, default: int | None = None) -> int | None:
        """Return a positive whole number, or `None` where the field is null.

        Args:
            name: the field.
            default: the value of an absent field.
        """
        return None if self._take(name, default) is None else self.integer(name, default)

    def optional_number(self, name: str, default: float | None = None) -> float | None:
        """Return a positive number, or `None` where the field is null.

        Args:
            name: the field.
            default: the value of an absent field.
        """
        return None if self._take(name, default) is None else self.number(name, default or 1.0)

    def count(self, name: str, default: int | None = None) -> int:
        """Return a number of layers, experts or head features, which is limited.

        Args:
            name: the field.
            default: the value of an absent or null field; without it the field is required.
        """
        value = self.integer(name, default)
        if value > MOST_PARTS:
            self._problem(name, f"= {value} is more than any model has: up to {MOST_PARTS} are supported")
            return 1
        return value

    def divisor(self, name: str, multiple: str) -> int:
        """Return a positive whole number that divides another field.

        Args:
            name: the field.
            multiple: the field that it divides.
        """
        value, total = self.integer(name), self.integer(multiple)
        if total % value:
            self._problem(name, f"= {value} must divide {multiple} = {total}")
        return value

    def number(self, name: str, default: float) -> float:
        """Return a positive number that is positive and finite in float32 too.

        Args:
            name: the field.
            default: the value of an absent or null field.
        """
        value = self._take(name)
        value = default if value is None else value
        least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            self._problem(name, f"must be a positive number, in float32 too, not {quoted(value)}")
            return default
        return float(value)

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """Return a list of positive numbers.

        Args:
            name: the field.
            count: the required length.
        """
        value = self._take(name)
        if (
            isinstance(value, list)
            and len(value) == count
            and all(isinstance(v, int | float) and not isinstance(v, bool) and 0 < v < math.inf for v in value)
        ):
            return tuple(float(v) for v in value)
        self._problem(name, f"must be {count} positive numbers, not {quoted(value)}")
        return (1.0,) * count

    def choices(self, name: str, supported: Collection[str], count: int) -> tuple[str, ...] | None:
        """Return a list of words, one for each layer, or `None` if the field is absent or null.

        Args:
            name: the field.
            supported: the supported words.
            count: number of layers.
        """
        value = self._take(name)
        if value is None:
            return None
        if (
            isinstance(value, list)
            and len(value) == count
            and all(isinstance(v, str) and v in supported for v in value)
        ):
            return tuple(value)
        self._problem(name, f"must be one of {', '.join(supported)} for each of {count} layers, not {quoted(value)}")
        return None

    def choice(self, name: str, supported: Collection[str], default: str) -> str:
        """Return one of the supported words.

        Args:
            name: the field.
            supported: the supported words.
            default: the value of an absent or null field.
        """
        value = self._take(name)
        value = default if value is None else value
        if not isinstance(value, str) or value not in supported:
            self._problem(name, f"= {quoted(value)} isn't supported, only {', '.join(supported)} are")
            return default
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """Return a truth value.

        Args:
            name: the field.
            default: the value of an absent or null field.
        """
        value = self._take(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            self._problem(name, f"must be true or false, not {quoted(value)}")
            return default
        return value

    def expect(self, name: str, value: Any) -> None:
        """Note a problem unless a field is absent or has the only supported value.

        Args:
            name: the field.
            value: the supported value.
        """
        actual = self._take(name)
        if actual is not None and actual != value:
            self._problem(name, f"= {quoted(actual)} isn't supported, only {value!r} is")

    def ignore(self, name: str) -> None:
        """Mark a field as read, with any value.

        Args:
            name: the field.
        """
        self._take(name)

    def activation(self, name: str, default: str) -> str:
        """Return the name of an activation in `duat_jax.nn.ACTIVATIONS`.

        Args:
            name: the field.
            default: the value of an absent field.
        """
        value = self._take(name, default)
        if not isinstance(value, str) or value not in ACTIVATION_NAMES:
            self._problem(name, f"= {quoted(value)} isn't supported, only {', '.join(ACTIVATION_NAMES)} are")
            return "gelu"
        return ACTIVATION_NAMES[value]
