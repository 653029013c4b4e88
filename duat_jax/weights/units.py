"""The units of a model's weights: parameters, neurons, heads and rows of embeddings."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from duat_jax.models.layer_parts import blocks, written_out
from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import SlicedAttention
from duat_jax.nn.experts import Experts
from duat_jax.nn.linear import Linear

STACK, BLOCKS, LAYERS = "stack", "stack.blocks.", "layers."
EMBEDDINGS = "embedding", "projection"
"""The beginnings of the names of parameters before the first layer."""
ROWS = "embedding.token", "embedding.position", "embedding.segment", "head.unembedding"
"""The matrices of which each row belongs to a token, a position, a segment or an output."""


def parameters_of(model: Transformer) -> dict[str, Any]:
    """Return every parameter of a model by its name, the layers of a loop each for itself.

    Example:
        >>> import duat_jax as duat
        >>> parameters_of(duat.load())["layers.0.mlp.input.kernel"].shape
        (192, 768)
    """
    return {name_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(written_out(model))}


def name_of(path: Any) -> str:
    """Return the name of a parameter of a model whose layers are written out."""
    name = jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value")
    return LAYERS + name.removeprefix(BLOCKS) if name.startswith(BLOCKS) else name


class UnitSums(NamedTuple):
    """Sums of a number for each weight, by unit.

    Args:
        parameters: the sum of every parameter, by its name; together they are the sum of all weights.
        neurons: by linear layer of an MLP, the sum over each neuron's weights, with its bias, `[neurons]`; of experts
            `[experts, neurons]`.
        heads: by linear layer of an attention, the sum over each head's weights, with their biases, `[heads]`; keys and
            values that several heads share are one.
        rows: by embedding, the sum of each row: of a token, a position, a segment or an output.
    """

    parameters: dict[str, Float[Array, ""]]
    neurons: dict[str, Float[Array, "..."]]
    heads: dict[str, Float[Array, "heads"]]
    rows: dict[str, Float[Array, "rows"]]


def units_of(numbers: Transformer) -> UnitSums:
    """Sum a number for each weight of a model by unit."""
    numbers = written_out(numbers)
    parameters = parameters_of(numbers)
    neurons: dict[str, Array] = {}
    heads: dict[str, Array] = {}
    for i, block in enumerate(blocks(numbers)):
        layer = f"{LAYERS}{i}"
        neurons |= {f"{layer}.mlp.{name}": of_map for name, of_map in _neurons(block.mlp).items()}
        heads |= {f"{layer}.attention.{name}": of_map for name, of_map in _heads(block.attention).items()}
    return UnitSums(
        {name: leaf.sum() for name, leaf in parameters.items()},
        neurons,
        heads,
        {name: parameters[name].sum(-1) for name in ROWS if name in parameters},
    )


def _outputs(linear: Linear) -> Float[Array, "outputs"]:
    """Return the sums of all weights of each output of a linear layer."""
    sums = linear.kernel[...].sum(0)
    return sums if linear.bias is None else sums + linear.bias[...]


def _neurons(mlp: Any) -> dict[str, Array]:
    inner = [name for name in ("input", "factor") if hasattr(mlp, name)]
    if not isinstance(mlp, Experts):
        return {name: _outputs(getattr(mlp, name)) for name in inner} | {"output": mlp.output.kernel[...].sum(1)}
    sums = {name: getattr(mlp, name)[...].sum(1) for name in inner}
    biases = {name: getattr(mlp, f"{name}_bias") for name in inner}
    sums = {name: total if (bias := biases[name]) is None else total + bias[...] for name, total in sums.items()}
    return sums | {"output": mlp.output[...].sum(2)}


def _heads(attention: Any) -> dict[str, Array]:
    inner = "query", "key", "value"
    outer = {"output": attention.output.kernel[...].reshape(attention.heads, -1).sum(1)}
    if isinstance(attention, SlicedAttention):
        return {name: getattr(attention, name)[...].sum((1, 2)) for name in inner} | outer
    sums = {name: _outputs(getattr(attention, name)) for name in inner}
    return {name: each.reshape(-1, attention.head_features).sum(1) for name, each in sums.items()} | outer


def numbered(model: Transformer) -> tuple[Transformer, list[str]]:
    """Return the number of the parameter that each weight belongs to, and the parameters' names."""
    count = 0

    def numbers(path: Any, leaf: Array) -> np.ndarray:
        nonlocal count
        in_loop = jax.tree_util.keystr(path, simple=True, separator=".").startswith(f"{STACK}.repeated.")
        steps = leaf.shape[:1] if in_loop else ()
        first, count = count, count + (steps[0] if steps else 1)
        return np.arange(first, count).reshape(steps)

    tree: Transformer = jax.tree_util.tree_map_with_path(numbers, model)
    by_number = {int(number): name for name, number in parameters_of(tree).items()}
    return tree, [by_number[i] for i in range(count)]
