"""A pruned model in the shape of the model that it was made from, with zeros for what is missing."""

from dataclasses import fields, replace
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.errors import DuatError
from duat_jax.models.config import Config
from duat_jax.models.layer_parts import blocks, written_out
from duat_jax.models.transformer import Transformer
from duat_jax.nn.block import Block, Part
from duat_jax.nn.config import BlockConfig
from duat_jax.nn.linear import Linear
from duat_jax.nn.mlp import MLP, GatedMLP
from duat_jax.nn.stack import Stack
from duat_jax.pruning.resizing import linear_maps, with_biases

FAR = 0.5
"""The relative distance from which on weights aren't those of the same neuron or layer."""


def is_pruned(smaller: Config, larger: Config) -> bool:
    """Return whether a configuration differs from another one in fewer neurons or layers, and biases of MLPs, alone."""

    def without_sizes(block: BlockConfig) -> BlockConfig:
        return replace(block, neurons=1, mlp_bias=False)

    same = [field.name for field in fields(Config) if field.name not in ("blocks", "positions")]
    kinds = {without_sizes(block) for config in (smaller, larger) for block in config.blocks}
    fewer = smaller.layers < larger.layers or (
        smaller.layers == larger.layers
        and any(a.neurons < b.neurons for a, b in zip(smaller.blocks, larger.blocks, strict=True))
        and all(a.neurons <= b.neurons for a, b in zip(smaller.blocks, larger.blocks, strict=True))
    )
    alike = all(getattr(smaller, name) == getattr(larger, name) for name in same)
    plain = larger.blocks[0].arrangement in ("pre-norm", "parallel") and larger.blocks[0].experts is None
    return fewer and alike and plain and len(kinds) == 1


def filled(before: Transformer, after: Transformer) -> tuple[Transformer, Transformer]:
    """Return two models in one shape, where one of them is the other one without some neurons or layers."""
    # Layers and neurons are recognised by their weights, in their order. What is missing has weights of zero, so that
    # the model computes what it did. MLPs that got biases by pruning have biases of zero before it.
    if is_pruned(before.config, after.config):
        return filled(after, before)[::-1]
    if not is_pruned(after.config, before.config):
        return before, after
    copied = with_biases if any(block.mlp_bias for block in after.config.blocks) else written_out
    larger, smaller = copied(before), copied(after)
    whole, pruned = blocks(larger), blocks(smaller)
    few, many = (np.stack([_flat(block.attention) for block in stack]) for stack in (pruned, whole))
    layers = _matches(few, many, "layer").tolist()
    stack: list[Block] = []
    for number, block in enumerate(whole):
        if number in layers:
            stack.append(_with_all_neurons(pruned[layers.index(number)], block, number))
        else:
            stack.append(jax.tree.map(jnp.zeros_like, block))
    smaller.stack = Stack(stack)
    smaller.config = replace(larger.config, positions=after.config.positions)
    return larger, smaller


def _flat(attention: Part) -> Float[np.ndarray, "weights"]:
    """Return the weights of an attention in float32, as one vector."""
    return np.concatenate([np.asarray(leaf, np.float32).ravel() for leaf in jax.tree.leaves(attention)])


def _with_all_neurons(pruned: Block, whole: Block, layer: int) -> Block:
    """Return a block with as many neurons as another one, those that it hasn't with weights of zero."""
    small, large = (linear_maps(cast(MLP | GatedMLP, block.mlp)) for block in (pruned, whole))
    few, many = (
        np.concatenate([_columns(maps[name]) for name in maps if name != "output"], 1) for maps in (small, large)
    )
    places = _matches(few, many, f"neuron of layer {layer}")
    block = jax.tree.map(lambda leaf: leaf, pruned)
    block.mlp = jax.tree.map(jnp.zeros_like, whole.mlp)
    for name, old in small.items():
        new, outer = getattr(block.mlp, name), name == "output"
        new.kernel.set_value(_placed(old.kernel[...], places, 0 if outer else 1, new.kernel.shape))
        if old.bias is not None:
            new.bias.set_value(old.bias[...] if outer else _placed(old.bias[...], places, 0, new.bias.shape))
    return block


def _columns(linear: Linear) -> Float[np.ndarray, "neurons features"]:
    return np.asarray(linear.kernel[...], np.float32).T


def _placed(values: Array, places: Int[np.ndarray, "kept"], axis: int, shape: tuple[int, ...]) -> Array:
    """Return values at some places along an axis of an array of zeros."""
    zeros = jnp.zeros(shape, values.dtype)
    return zeros.at[places].set(values) if axis == 0 else zeros.at[:, places].set(values)


def _matches(
    few: Float[np.ndarray, "few weights"], many: Float[np.ndarray, "many weights"], what: str
) -> Int[np.ndarray, "few"]:
    """Return the row of the second array that each row of the first one is nearest to, in their order."""
    squares = (few**2).sum(1)[:, None] + (many**2).sum(1) - 2 * few @ many.T
    sizes = np.maximum((many**2).sum(1), np.finfo(np.float32).tiny)
    relative = np.sqrt(np.maximum(squares, 0) / sizes)
    nearest = relative.argmin(1)
    distances = relative[np.arange(len(few)), nearest]
    if len(few) == len(many):
        nearest = np.arange(len(few))
    elif (np.diff(nearest) <= 0).any() or (distances > FAR).any():
        raise DuatError(
            f"the smaller model isn't the larger one with less of it: {what} {int(distances.argmax())} is unlike all"
            " that could stand there; compare models of one shape"
        )
    return nearest
