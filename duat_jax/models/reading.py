"""Reading a checkpoint's configuration and tensors, keeping every problem for one report."""

import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array
from safetensors import SafetensorError, safe_open

from duat_jax.errors import BadCheckpoint

ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}
"""Hugging Face's names of the activations in `duat_jax.nn.ACTIVATIONS`."""

FLOATING = ("F64", "F32", "F16", "BF16")
"""The dtypes that weights may be stored in."""

SHOWN_PROBLEMS = 12


def raise_problems(path: Path, problems: list[str]) -> None:
    """Raise one error that names every problem found.

    Args:
        path: the file or directory in which they were found.
        problems: what was wrong.

    Raises:
        BadCheckpoint: if there are any.
    """
    if problems:
        more = len(problems) - SHOWN_PROBLEMS
        shown = "; ".join(problems[:SHOWN_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
        raise BadCheckpoint(f"{path}: {shown}")


class Settings:
    """A checkpoint's `config.json`, and the problems found while reading it.

    Args:
        values: the parsed file.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.problems: list[str] = []

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a positive whole number.

        Args:
            name: the field.
            default: what an absent or null field means; without it the field is required.
        """
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.problems.append(f"{name} must be a positive whole number, not {value!r}")
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
            self.problems.append(f"{name} = {value} must divide {of} = {whole}")
        return value

    def number(self, name: str, default: float) -> float:
        """Return a positive number.

        Args:
            name: the field.
            default: what an absent field means.
        """
        value = self.values.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            self.problems.append(f"{name} must be a positive number, not {value!r}")
            return default
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        """Return a truth value.

        Args:
            name: the field.
            default: what an absent field means.
        """
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            self.problems.append(f"{name} must be true or false, not {value!r}")
            return default
        return value

    def expect(self, name: str, value: Any) -> None:
        """Note a problem unless a field has the only value that is supported, or is absent.

        Args:
            name: the field.
            value: the supported value.
        """
        if self.values.get(name, value) != value:
            self.problems.append(f"{name} = {self.values[name]!r} isn't supported, only {value!r} is")

    def activation(self, name: str, default: str) -> str:
        """Return the name of an activation in `duat_jax.nn.ACTIVATIONS`.

        Args:
            name: the field.
            default: what an absent field means.
        """
        value = self.values.get(name, default)
        if not isinstance(value, str) or value not in ACTIVATION_NAMES:
            self.problems.append(f"{name} = {value!r} isn't supported, only {', '.join(ACTIVATION_NAMES)} are")
            return "gelu"
        return ACTIVATION_NAMES[value]


class Tensors:
    """A checkpoint's tensors, and the problems found while reading them.  No pickle is ever opened.

    Args:
        path: a safetensors file.
        dtype: what every tensor is read as.
        prefix: what may stand before every name.
        ignored: regular expression of names that are no part of the model.

    Raises:
        BadCheckpoint: if the file is damaged.
    """

    def __init__(self, path: Path, dtype: DTypeLike, *, prefix: str, ignored: str) -> None:
        try:
            self.file = safe_open(path, framework="np")
        except SafetensorError as error:
            raise BadCheckpoint(f"{path}: truncated or not a safetensors file ({error}); copy it again") from None
        self.dtype = dtype
        stored = self.file.keys()
        self.names = {name.removeprefix(prefix): name for name in stored}
        self.unread = {name for name in self.names if not re.fullmatch(ignored, name)}
        self.problems: list[str] = []

    def read(self, name: str, *shape: int | None) -> Array:
        """Return one tensor, or a stand-in where there is a problem with it.

        Args:
            name: its name, without prefix.
            *shape: what its shape must be; `None` for any size.
        """
        self.ignore(name)
        if name not in self.names:
            self.problems.append(f"tensor {name} {list(shape)} is missing")
            return self._stand_in(shape)
        stored = self.file.get_slice(self.names[name])
        found = stored.get_shape()
        if len(found) != len(shape) or any(s not in (None, f) for s, f in zip(shape, found, strict=True)):
            expected = [size or "any" for size in shape]
            self.problems.append(f"tensor {name} has shape {found}, but config.json says {expected}")
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

    def all_problems(self) -> list[str]:
        """Return every problem, tensors that nobody read among them."""
        extra = [
            f"tensor {name} {self.file.get_slice(self.names[name]).get_shape()} isn't part of this model"
            for name in sorted(self.unread)
        ]
        return self.problems + extra


def set_parameter(module: nnx.Module, name: str, value: Array) -> None:
    """Replace a module's parameter.

    Args:
        module: where it is.
        name: which attribute.
        value: its new value.
    """
    setattr(module, name, nnx.Param(jax.device_put(value)))


def set_linear(
    layer: nnx.Module, tensors: Tensors, name: str, inputs: int, outputs: int, *, transposed: bool = False
) -> None:
    """Read a linear layer.

    Args:
        layer: the layer.
        tensors: the checkpoint.
        name: its name in the checkpoint.
        inputs: size of its input.
        outputs: size of its output.
        transposed: whether the checkpoint stores `[outputs, inputs]`.
    """
    shape = (outputs, inputs) if transposed else (inputs, outputs)
    kernel = tensors.read(f"{name}.weight", *shape)
    set_parameter(layer, "kernel", kernel.T if transposed else kernel)
    set_parameter(layer, "bias", tensors.read(f"{name}.bias", outputs))


def set_norm(layer: nnx.Module | None, tensors: Tensors, name: str, features: int) -> None:
    """Read a layer normalisation.

    Args:
        layer: the layer.
        tensors: the checkpoint.
        name: its name in the checkpoint.
        features: its width.
    """
    if layer is None:
        raise ValueError(f"this architecture has no norm to read {name} into")
    set_parameter(layer, "scale", tensors.read(f"{name}.weight", features))
    set_parameter(layer, "bias", tensors.read(f"{name}.bias", features))
