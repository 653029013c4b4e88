"""How a checkpoint's tensors become parameters: a table of stored name, our parameters, and what lies between."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array

from duat_jax.models.checkpoint.tensors import Tensors

Shape = tuple[int | None, ...]
Shapes = Sequence[tuple[int, ...]]


class Transform(NamedTuple):
    """What lies between a stored tensor and our parameters.

    Args:
        shape: the stored tensor's shape from those of the parameters; `None` is any size.
        unpack: the parameters' values from the stored tensor and their shapes.
        pack: the stored tensor from the parameters' values.
    """

    shape: Callable[[Shapes], Shape]
    unpack: Callable[[Array, Shapes], Sequence[Array]]
    pack: Callable[[Sequence[Array]], Array]


def _ends(shapes: Shapes) -> list[int]:
    return [sum(shape[-1] for shape in shapes[:i]) for i in range(1, len(shapes))]


AS_IT_IS = Transform(lambda shapes: shapes[0], lambda stored, _: [stored], lambda values: values[0])
TRANSPOSED = Transform(lambda shapes: shapes[0][::-1], lambda stored, _: [stored.T], lambda values: values[0].T)
SIDE_BY_SIDE = Transform(
    lambda shapes: (*shapes[0][:-1], sum(shape[-1] for shape in shapes)),
    lambda stored, shapes: jnp.split(stored, _ends(shapes), axis=-1),
    lambda values: jnp.concatenate(values, axis=-1),
)
"""Several parameters along the last axis."""

FIRST_ROW = Transform(lambda shapes: (None, *shapes[0]), lambda stored, _: [stored[0]], lambda values: values[0][None])
"""Of as many rows as there are."""


class Entry(NamedTuple):
    """One row of a family's tensor map.

    Args:
        stored: name in the checkpoint, without prefix.
        parameters: paths of the parameters that it becomes, for example `"stack.blocks.0.mlp.input.kernel"`.
        transform: what lies between.
    """

    stored: str
    parameters: tuple[str, ...]
    transform: Transform = AS_IT_IS


def in_every_layer(layers: int, entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the entries of every layer, `{i}` replaced by its number and `block` by the path of its block.

    Args:
        layers: number of layers.
        entries: those of one layer.

    Example:
        >>> next(in_every_layer(1, [Entry("h.{i}.ln_1.weight", ("block.norm_1.scale",))])).parameters
        ('stack.blocks.0.norm_1.scale',)
    """
    for i in range(layers):
        for stored, parameters, transform in entries:
            paths = tuple(f"stack.blocks.{i}.{path.removeprefix('block.')}" for path in parameters)
            yield Entry(stored.format(i=i), paths, transform)


def linear(stored: str, *layers: str, transform: Transform = AS_IT_IS) -> list[Entry]:
    """Return the entries of one stored linear layer with its bias.

    Args:
        stored: its name.
        *layers: paths of our linear layers; several if they are stored side by side.
        transform: what lies between the kernels.
    """
    kernels, biases = (tuple(f"{layer}.{name}" for layer in layers) for name in ("kernel", "bias"))
    of_bias = AS_IT_IS if len(layers) == 1 else SIDE_BY_SIDE
    return [Entry(f"{stored}.weight", kernels, transform), Entry(f"{stored}.bias", biases, of_bias)]


def norm(stored: str, ours: str) -> list[Entry]:
    """Return the entries of one LayerNorm.

    Args:
        stored: its name.
        ours: path of our norm.
    """
    return [Entry(f"{stored}.weight", (f"{ours}.scale",)), Entry(f"{stored}.bias", (f"{ours}.bias",))]


def parameter_at(model: nnx.Module, path: str) -> nnx.Param:
    """Return a model's parameter.

    Args:
        model: the model.
        path: attributes and indices, separated by dots.
    """
    found: Any = model
    for step in path.split("."):
        found = found[int(step)] if step.isdigit() else getattr(found, step)
    return found


def fill_from(table: Sequence[Entry], model: nnx.Module, tensors: Tensors) -> None:
    """Put a checkpoint's tensors into a model, where the table says; problems are kept in `tensors`.

    Args:
        table: the family's tensor map.
        model: the model, of the checkpoint's shape.
        tensors: the checkpoint's tensors.
    """
    for entry in table:
        parameters = [parameter_at(model, path) for path in entry.parameters]
        shapes = [parameter.shape for parameter in parameters]
        shape = entry.transform.shape(shapes)
        stored = tensors.read(entry.stored, *shape)
        # What has a problem has a stand-in of another shape: it is left out, and reading goes on.
        if len(stored.shape) != len(shape) or any(s not in (None, f) for s, f in zip(shape, stored.shape, strict=True)):
            continue
        for parameter, value in zip(parameters, entry.transform.unpack(stored, shapes), strict=True):
            parameter.set_value(jax.device_put(value))
