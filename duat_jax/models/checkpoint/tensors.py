"""A checkpoint's `model.safetensors`: every tensor is read, known to be no part of the model, or refused by name."""

import re
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array
from safetensors import SafetensorError, safe_open

from duat_jax.errors import BadCheckpoint

FLOATING = ("F64", "F32", "F16", "BF16")
"""The dtypes that weights may be stored in."""


class Tensors:
    """A checkpoint's tensors, and the problems found while reading them.  No pickle is ever opened.

    Args:
        path: a safetensors file.
        dtype: what every tensor is read as.
        prefix: what stands before every name of the model, or before none; heads never have it.
        ignored: regular expression of names, without prefix, that are no part of the model.
        heads: regular expression of names that are read and have no prefix.
        older: other endings of names, and what they are called here.

    Raises:
        BadCheckpoint: if the file is damaged.
    """

    def __init__(
        self, path: Path, dtype: DTypeLike, *, prefix: str, ignored: str, heads: str, older: Mapping[str, str]
    ) -> None:
        try:
            self.file = safe_open(path, framework="np")
        except (SafetensorError, OSError, ValueError) as error:
            raise BadCheckpoint(f"{path}: truncated or not a safetensors file ({error}); copy it again") from None
        self.dtype = dtype
        self.problems: list[str] = []
        self.names: dict[str, str] = {}
        self.unread: set[str] = set()
        stored = sorted(self.file.keys())
        prefixed = any(name.startswith(prefix) for name in stored)
        for full in stored:
            name = full.removeprefix(prefix)
            name = full if re.fullmatch(heads, name) else name
            name = next((name.removesuffix(old) + new for old, new in older.items() if name.endswith(old)), name)
            if name in self.names:
                self.problems.append(f"tensors {self.names[name]} and {full} are both {name}: keep one of them")
                continue
            self.names[name] = full
            if re.fullmatch(ignored, name):
                continue
            self.unread.add(name)
            if prefixed and not full.startswith(prefix) and not re.fullmatch(heads, name):
                self.problems.append(f"tensor {full} has no prefix {prefix}, others have it: rename it")

    def numbers(self, pattern: str) -> set[int]:
        """Return the numbers of the layers that have a tensor.

        Args:
            pattern: regular expression that begins the name of a layer's tensor, its number a group.
        """
        return {int(found[1]) for name in self.names if (found := re.match(pattern, name))}

    def read(self, name: str, *shape: int | None) -> Array:
        """Return one tensor, or a stand-in where there is a problem with it.

        Args:
            name: its name, without prefix.
            *shape: what its shape must be; `None` for any size.
        """
        self.ignore(name)
        if name not in self.names:
            self.problems.append(f"tensor {name} {_sizes(shape)} is missing")
            return self._stand_in(shape)
        stored = self.file.get_slice(self.names[name])
        found = stored.get_shape()
        if len(found) != len(shape) or any(f < 1 or s not in (None, f) for s, f in zip(shape, found, strict=True)):
            self.problems.append(f"tensor {name} has shape {found}, but config.json says {_sizes(shape)}")
            return self._stand_in(shape)
        if stored.get_dtype() not in FLOATING:
            self.problems.append(f"tensor {name} is of {stored.get_dtype()}, only {', '.join(FLOATING)} are supported")
            return self._stand_in(shape)
        with np.errstate(over="ignore"):
            tensor = jnp.asarray(self.file.get_tensor(self.names[name]), self.dtype)
        if not np.isfinite(tensor).all():
            self.problems.append(f"tensor {name} has NaN or infinite entries")
        return tensor

    def _stand_in(self, shape: tuple[int | None, ...]) -> Array:
        """Return something small that can be split and transposed: loading goes on to find every other problem."""
        return jnp.zeros([3] * len(shape), self.dtype)

    def ignore(self, name: str) -> None:
        """Take a tensor as read.

        Args:
            name: its name, without prefix.
        """
        self.unread.discard(name)

    def ignore_copy(self, name: str, of: Array | jax.ShapeDtypeStruct, of_name: str) -> None:
        """Take a tensor as read if it is absent or says the same as another.

        Args:
            name: its name, without prefix.
            of: the other tensor; its shape alone if it couldn't be read.
            of_name: the other's name.
        """
        if not isinstance(of, jax.Array):  # the other one has a problem itself
            self.ignore(name)
        elif name in self.names and not np.array_equal(self.read(name, *of.shape), of):
            self.problems.append(f"tensor {name} differs from {of_name}, but config.json says they are tied")

    def all_problems(self) -> list[str]:
        """Return every problem, tensors that nobody read among them."""
        extra = [
            f"tensor {name} {self.file.get_slice(self.names[name]).get_shape()} isn't part of this model"
            for name in sorted(self.unread)
        ]
        return self.problems + extra


def _sizes(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"
