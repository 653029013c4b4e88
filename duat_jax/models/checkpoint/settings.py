"""A checkpoint's `config.json`: every field is read, known to be harmless, or refused by name."""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.harmless import HARMLESS
from duat_jax.models.checkpoint.limits import CONFIGURATION, check_limit
from duat_jax.models.checkpoint.problems import SHOWN_PROBLEMS, shown

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
"""The largest size that a field may ask for."""

MOST_CLASSES = 10**6
"""The largest number of classes that are given by number alone, so that an absurd one takes no memory."""

MOST_PARTS = 10_000
"""The largest number of layers or experts, so that an absurd one takes no memory."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        doubled = [shown(name) for name, count in Counter(name for name, _ in pairs).items() if count > 1]
        more = f" and {len(doubled) - SHOWN_PROBLEMS} more" if len(doubled) > SHOWN_PROBLEMS else ""
        raise ValueError(f"{', '.join(doubled[:SHOWN_PROBLEMS])}{more} is given twice")
    return values


def read_json(file: Path, most: int = CONFIGURATION) -> Any:
    """Return what a JSON file says.

    Args:
        file: the file.
        most: the largest number of bytes that it may have.

    Raises:
        BadCheckpoint: if it can't be read, is too large, isn't JSON, or gives a field twice.
    """
    try:
        size = file.stat().st_size
    except OSError as error:
        raise BadCheckpoint(f"{file}: can't be read ({error})") from None
    check_limit(file, "bytes", size, most)
    try:
        return json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except (OSError, ValueError, RecursionError) as error:
        raise BadCheckpoint(f"{file}: not JSON ({error}); copy it again") from None


HEAD_KINDS = {
    "ForCausalLM": "next token",
    "LMHeadModel": "next token",
    "ForMaskedLM": "masked token",
    "ForSequenceClassification": "classes",
    "ForImageClassification": "classes",
    "Model": "hidden",
}
"""What the class that a checkpoint was saved from reads out, by the end of its name."""


class Settings:
    """A checkpoint's `config.json`, which of its fields were read, and the problems found in them.

    Args:
        values: the parsed file.
        head: which head is wanted; the one that the file names if absent.
        path: what stands before the fields' names in messages.
    """

    def __init__(self, values: Mapping[str, Any], head: str | None = None, path: str = "") -> None:
        self.values = dict(values)
        self.wanted_head = head
        self.path = path
        self.unread = set(values)
        self.problems: list[str] = []
        self.groups: dict[str, Settings] = {}

    def _take(self, name: str, default: Any = None) -> Any:
        self.unread.discard(name)
        return self.values.get(name, default)

    def _problem(self, name: str, what: str) -> None:
        self.problems.append(f"{self.path}{name} {what}")

    def has(self, name: str) -> bool:
        """Return whether a field is there and isn't null.

        Args:
            name: the field.
        """
        return self.values.get(name) is not None

    def group(self, name: str) -> "Settings | None":
        """Return the fields inside a field; `None` if it is absent or null.

        Args:
            name: the field.
        """
        value = self._take(name)
        if value is None or name in self.groups:
            return self.groups.get(name)
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            self._problem(name, f"must be fields of its own, not {shown(value)}")
            value = {}
        self.groups[name] = Settings(value, path=f"{self.path}{name}.")
        return self.groups[name]

    def head(self, supported: Collection[str], default: str) -> str:
        """Return which head is read: the wanted one, or that of the class which the checkpoint was saved from.

        Args:
            supported: the kinds of head that the family has.
            default: the kind where neither says one.
        """
        if self.wanted_head is not None:
            if self.wanted_head not in supported:
                self.problems.append(
                    f"head = {shown(self.wanted_head)} isn't supported, only {', '.join(supported)} are"
                )
                return default
            return self.wanted_head
        names = self._take("architectures")
        name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
        kind = next((kind for end, kind in HEAD_KINDS.items() if name.endswith(end)), None)
        if kind is not None and kind in supported:
            return kind
        # Hidden states are what they are under any head; another read-out would be one that the model doesn't have.
        if name and default != "hidden":
            choices = " or ".join(repr(kind) for kind in supported if kind != "classes")
            self._problem(
                "architectures", f"= {shown(names)} reads out what isn't supported: load it with head={choices}"
            )
        return default

    def labels(self) -> tuple[str, ...]:
        """Return what the classes are called, in the order of their numbers; two without names if nothing is said."""
        value, count = self._take("id2label"), self._take("num_labels")
        if isinstance(value, dict) and value and all(isinstance(label, str) for label in value.values()):
            numbers = sorted(value, key=lambda number: (len(number), number))
            if numbers == [str(i) for i in range(len(numbers))]:
                return tuple(value[number] for number in numbers)
        if value is not None:
            self._problem("id2label", f"must name the classes 0, 1, …, not {shown(value)}")
        classes = 2 if count is None else count
        if not isinstance(classes, int) or isinstance(classes, bool) or not 1 <= classes <= MOST_CLASSES:
            self._problem("num_labels", f"must be a positive whole number, not {shown(count)}")
            classes = 2
        return tuple(f"LABEL_{i}" for i in range(classes))

    def rename(self, name: str, to: str) -> None:
        """Read a field under another name; both may be given if they say the same.

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
            self._problem(name, f"= {shown(value)} differs from {to} = {shown(self.values[to])}")

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """Return a whole number.

        Args:
            name: the field.
            default: what an absent or null field means; without it the field is required.
            least: the smallest that it may be.
        """
        value = self._take(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST:
            kind = "positive whole number" if least else "whole number from 0"
            self._problem(name, f"must be a {kind} up to {LARGEST}, not {shown(value)}")
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
        self._problem(name, f"must be whole numbers, not {shown(value)}")
        return ()

    def each(self, name: str, layers: int, default: int | None = None) -> tuple[int, ...]:
        """Return a positive whole number for each layer: one for all of them, or a list.

        Args:
            name: the field.
            layers: number of layers.
            default: what an absent or null field means; without it the field is required.
        """
        if not isinstance(self.values.get(name), list):
            return (self.integer(name, default),) * layers
        found = self.integers(name)
        if len(found) == layers and all(1 <= number <= LARGEST for number in found):
            return found
        self._problem(name, f"must be a positive whole number for each of {layers} layers, not {shown(found)}")
        return (1,) * layers

    def pair(self, name: str, default: int) -> tuple[int, int]:
        """Return a height and a width, which are given as two positive whole numbers or as one.

        Args:
            name: the field.
            default: what an absent or null field means.
        """
        value = self._take(name)
        found = value if isinstance(value, list) else [default if value is None else value] * 2
        if len(found) == 2 and all(type(v) is int and 1 <= v <= LARGEST for v in found):
            return found[0], found[1]
        self._problem(name, f"must be a positive whole number up to {LARGEST}, or two, not {shown(value)}")
        return default, default

    def optional(self, name: str, default: int | None = None) -> int | None:
        """Return a positive whole number, or `None` where the field is null.

        Args:
            name: the field.
            default: what an absent field means.
        """
        return None if self._take(name, default) is None else self.integer(name, default)

    def optional_number(self, name: str, default: float | None = None) -> float | None:
        """Return a positive number, or `None` where the field is null.

        Args:
            name: the field.
            default: what an absent field means.
        """
        return None if self._take(name, default) is None else self.number(name, default or 1.0)

    def count(self, name: str, default: int | None = None) -> int:
        """Return a number of layers, of experts or of a head's features, each of which is counted one by one.

        Args:
            name: the field.
            default: what an absent or null field means; without it the field is required.
        """
        value = self.integer(name, default)
        if value > MOST_PARTS:
            self._problem(name, f"= {value} is more than any model has: up to {MOST_PARTS} are supported")
            return 1
        return value

    def divisor(self, name: str, of: str) -> int:
        """Return a positive whole number that divides another field.

        Args:
            name: the field.
            of: the field that it divides.
        """
        value, whole = self.integer(name), self.integer(of)
        if whole % value:
            self._problem(name, f"= {value} must divide {of} = {whole}")
        return value

    def number(self, name: str, default: float) -> float:
        """Return a positive number that is one in float32 too.

        Args:
            name: the field.
            default: what an absent or null field means.
        """
        value = self._take(name)
        value = default if value is None else value
        least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            self._problem(name, f"must be a positive number, in float32 too, not {shown(value)}")
            return default
        return float(value)

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """Return a list of positive numbers.

        Args:
            name: the field.
            count: how many there must be.
        """
        value = self._take(name)
        if (
            isinstance(value, list)
            and len(value) == count
            and all(isinstance(v, int | float) and not isinstance(v, bool) and 0 < v < math.inf for v in value)
        ):
            return tuple(float(v) for v in value)
        self._problem(name, f"must be {count} positive numbers, not {shown(value)}")
        return (1.0,) * count

    def choices(self, name: str, known: Collection[str], count: int) -> tuple[str, ...] | None:
        """Return a list of words, one for each layer; `None` if the field is absent or null.

        Args:
            name: the field.
            known: what a word may be.
            count: number of layers.
        """
        value = self._take(name)
        if value is None:
            return None
        if isinstance(value, list) and len(value) == count and all(isinstance(v, str) and v in known for v in value):
            return tuple(value)
        self._problem(name, f"must be one of {', '.join(known)} for each of {count} layers, not {shown(value)}")
        return None

    def choice(self, name: str, known: Collection[str], default: str) -> str:
        """Return one of a few words.

        Args:
            name: the field.
            known: what it may be.
            default: what an absent or null field means.
        """
        value = self._take(name)
        value = default if value is None else value
        if not isinstance(value, str) or value not in known:
            self._problem(name, f"= {shown(value)} isn't supported, only {', '.join(known)} are")
            return default
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """Return a truth value.

        Args:
            name: the field.
            default: what an absent or null field means.
        """
        value = self._take(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            self._problem(name, f"must be true or false, not {shown(value)}")
            return default
        return value

    def expect(self, name: str, value: Any) -> None:
        """Note a problem unless a field has the only value that is supported, or is absent.

        Args:
            name: the field.
            value: the supported value.
        """
        found = self._take(name)
        if found is not None and found != value:
            self._problem(name, f"= {shown(found)} isn't supported, only {value!r} is")

    def ignore(self, name: str) -> None:
        """Take a field as read, whatever it says.

        Args:
            name: the field.
        """
        self._take(name)

    def activation(self, name: str, default: str) -> str:
        """Return the name of an activation in `duat_jax.nn.ACTIVATIONS`.

        Args:
            name: the field.
            default: what an absent field means.
        """
        value = self._take(name, default)
        if not isinstance(value, str) or value not in ACTIVATION_NAMES:
            self._problem(name, f"= {shown(value)} isn't supported, only {', '.join(ACTIVATION_NAMES)} are")
            return "gelu"
        return ACTIVATION_NAMES[value]

    def all_problems(self, harmless: Collection[str] = ()) -> list[str]:
        """Return every problem, fields that nobody read among them unless they are null or known to be harmless.

        Args:
            harmless: fields of this family that leave the computation as it is, beside `HARMLESS`.
        """
        known = set(harmless) if self.path else HARMLESS | set(harmless)
        unknown = [
            f"{self.path}{_field(name)} = {shown(self.values[name])} isn't known here and may change what the model"
            " computes"
            for name in sorted(self.unread - known)
            if self.values[name] is not None
        ]
        inside = [problem for group in self.groups.values() for problem in group.all_problems()]
        return list(dict.fromkeys(self.problems + inside + unknown))


def _field(name: str) -> str:
    return name if re.fullmatch(r"[\w.]{1,60}", name) else shown(name)
