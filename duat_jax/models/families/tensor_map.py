"""Tensor maps: tables of stored names, parameters, and the transforms between them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from duat_jax.models.checkpoint.tensors import Tensors

Array = np.ndarray | jax.Array
Shape = tuple[int | None, ...]
Shapes = Sequence[tuple[int, ...]]
Put = Callable[[str, Array], jax.Array]


class Transform(NamedTuple):
    """A transform between stored tensors and parameters, of which one side is single.

    Args:
        shapes: the stored tensors' shapes from those of the parameters; `None` is any size.
        unpack: the parameters' values from the stored tensors and the parameters' shapes.
        pack: the stored tensors from the parameters' values.
    """

    shapes: Callable[[Shapes], Sequence[Shape]]
    unpack: Callable[[Sequence[Array], Shapes], Sequence[Array]]
    pack: Callable[[Sequence[Array]], Sequence[Array]]


def _ends(shapes: Shapes) -> list[int]:
    return [sum(shape[-1] for shape in shapes[:i]) for i in range(1, len(shapes))]


def transposed(transform: Transform) -> Transform:
    """Return the transform of tensors that are stored with their last two axes exchanged."""

    def exchanged(x: Array) -> Array:
        return np.swapaxes(x, -1, -2) if x.ndim > 1 else x

    def shape(s: Shape) -> Shape:
        return (*s[:-2], *s[-2:][::-1])

    return Transform(
        lambda shapes: [shape(s) for s in transform.shapes(shapes)],
        lambda stored, shapes: transform.unpack([exchanged(s) for s in stored], shapes),
        lambda values: [exchanged(s) for s in transform.pack(values)],
    )


AS_IT_IS = Transform(lambda shapes: [shapes[0]], lambda stored, _: stored, lambda values: values)
TRANSPOSED = transposed(AS_IT_IS)
SIDE_BY_SIDE = Transform(
    lambda shapes: [(*shapes[0][:-1], sum(shape[-1] for shape in shapes))],
    lambda stored, shapes: np.split(stored[0], _ends(shapes), axis=-1),
    lambda values: [np.concatenate(values, axis=-1)],
)
"""Several parameters along the last axis."""

SHARED = Transform(
    lambda shapes: [shapes[0]], lambda stored, shapes: [stored[0]] * len(shapes), lambda values: values[:1]
)
"""One value of several parameters."""


def head_by_head(heads: int) -> Transform:
    """Return the transform of several parameters that are stored together, interleaved head by head."""

    def split(x: Array, parts: int) -> list[Array]:
        by_head = x.reshape(*x.shape[:-1], heads, parts, -1)
        return [by_head[..., i, :].reshape(*x.shape[:-1], -1) for i in range(parts)]

    def join(values: Sequence[Array]) -> Array:
        by_head = [value.reshape(*value.shape[:-1], heads, -1) for value in values]
        return np.stack(by_head, axis=-2).reshape(*values[0].shape[:-1], -1)

    return Transform(
        SIDE_BY_SIDE.shapes,
        lambda stored, shapes: split(stored[0], len(shapes)),
        lambda values: [join(values)],
    )


def stacked(count: int) -> Transform:
    """Return the transform of one parameter that is stored as separate, transposed tensors along its first axis."""
    return Transform(
        lambda shapes: [shapes[0][1:][::-1]] * count,
        lambda stored, _: [np.stack([s.T for s in stored])],
        lambda values: [value.T for value in values[0]],
    )


class Entry(NamedTuple):
    """One row of a family's tensor map.

    Args:
        stored: name in the checkpoint, without prefix; several where one parameter is stored in parts.
        parameters: paths of the parameters that it becomes, for example `"stack.blocks.0.mlp.input.kernel"`.
        transform: the transform between them.
    """

    stored: str | tuple[str, ...]
    parameters: tuple[str, ...]
    transform: Transform = AS_IT_IS

    @property
    def names(self) -> tuple[str, ...]:
        """The stored names."""
        return (self.stored,) if isinstance(self.stored, str) else self.stored


def in_layer(i: int, entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the entries of one layer, `{i}` replaced by its number and `block` by the path of its block.

    Args:
        i: the layer's number.
        entries: the entries of a layer.

    Example:
        >>> next(in_layer(0, [Entry("h.{i}.ln_1.weight", ("block.norm_1.scale",))])).parameters
        ('stack.blocks.0.norm_1.scale',)
    """
    for entry in entries:
        paths = tuple(f"stack.blocks.{i}.{path.removeprefix('block.')}" for path in entry.parameters)
        names = tuple(name.format(i=i) for name in entry.names)
        yield Entry(names, paths, entry.transform)


def in_every_layer(layers: int, entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the entries of all layers, equal in each."""
    for i in range(layers):
        yield from in_layer(i, entries)


def linear(stored: str, *layers: str, transform: Transform | None = None, bias: bool = True) -> list[Entry]:
    """Return the entries of one stored linear layer.

    Args:
        stored: its name.
        *layers: paths of our linear layers; several if they are stored together.
        transform: the transform of kernels and of biases; of kernels stored as `[outputs, inputs]` if absent.
        bias: whether it has a bias.
    """
    transform = TRANSPOSED if transform is None else transform
    kernels, biases = (tuple(f"{layer}.{name}" for layer in layers) for name in ("kernel", "bias"))
    entries = [Entry(f"{stored}.weight", kernels, transform)]
    return [*entries, Entry(f"{stored}.bias", biases, transform)] if bias else entries


def norm(stored: str, *ours: str, bias: bool = True) -> list[Entry]:
    """Return the entries of one stored norm.

    Args:
        stored: its name.
        *ours: path of our norm; several that share its parameters.
        bias: whether it has an offset.
    """
    transform = SHARED if len(ours) > 1 else AS_IT_IS
    scales, offsets = (tuple(f"{path}.{name}" for path in ours) for name in ("scale", "bias"))
    entries = [Entry(f"{stored}.weight", scales, transform)]
    return [*entries, Entry(f"{stored}.bias", offsets, transform)] if bias else entries


def part_at(model: nnx.Module, path: str) -> Any:
    """Return a part of a model."""
    part: Any = model
    for step in path.split(".") if path else ():
        part = part[int(step)] if step.isdigit() else getattr(part, step)
    return part


def parameter_at(model: nnx.Module, path: str) -> nnx.Param:
    """Return a model's parameter."""
    return part_at(model, path)


def fill(model: nnx.Module, table: Sequence[Entry], copies: Mapping[str, str], tensors: Tensors, put: Put) -> None:
    """Set a model's parameters from a checkpoint's tensors; problems are kept in `tensors`."""
    for entry in table:
        parameters = [parameter_at(model, path) for path in entry.parameters]
        shapes = [parameter.shape for parameter in parameters]
        expected = entry.transform.shapes(shapes)
        stored = [tensors.read(name, *shape) for name, shape in zip(entry.names, expected, strict=True)]
        # A tensor with a problem has a stand-in of another shape: it is left out, and reading goes on.
        if not all(_fits(s.shape, shape) for s, shape in zip(stored, expected, strict=True)):
            continue
        values = entry.transform.unpack(stored, shapes)
        placed: dict[int, jax.Array] = {}
        for path, parameter, value in zip(entry.parameters, parameters, values, strict=True):
            # A value that several parameters share is put once: putting it again doesn't copy it.
            placed[id(value)] = put(path, placed.get(id(value), value))
            parameter.set_value(placed[id(value)])
    paths = {name: entry.parameters[0] for entry in table for name in entry.names}
    for name, original in copies.items():
        tensors.ignore_copy(name, parameter_at(model, paths[original]).get_value(), original)


def _fits(actual: tuple[int, ...], expected: Shape) -> bool:
    return len(actual) == len(expected) and all(e in (None, f) for e, f in zip(expected, actual, strict=True))
