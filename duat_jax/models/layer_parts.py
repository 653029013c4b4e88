"""A model's blocks, MLPs and attentions, in the order of its layers, and the loop over them."""

import jax

from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import Attention, SlicedAttention
from duat_jax.nn.block import Block
from duat_jax.nn.mlp import MLP, GatedMLP
from duat_jax.nn.scanned_stack import ScannedStack
from duat_jax.nn.stack import Stack


def scanned(model: Transformer) -> Transformer:
    """Return a model with the parameters of all its layers stacked, whose layers are the steps of one loop.

    Example:
        >>> import duat_jax as duat
        >>> scanned(duat.load()).stack.repeated[0].mlp.input.kernel.shape
        (6, 192, 768)
    """
    # Its programs compile in a time that doesn't grow with depth. Answers are the same, with the same keys, but that
    # discontinuities may have more, of parts that are zero.
    copy = jax.tree.map(lambda leaf: leaf, model)
    copy.stack = ScannedStack(model.stack.blocks)
    return copy


def written_out(model: Transformer) -> Transformer:
    """Return a copy of a model in which every layer is a block of its own, whose parts can be changed."""
    copy = jax.tree.map(lambda leaf: leaf, model)
    if isinstance(model.stack, ScannedStack):
        copy.stack = Stack(model.stack.written_out())
    return copy


def blocks(model: Transformer) -> list[Block]:
    """Return a model's blocks."""
    return [block for block in model.stack.blocks if isinstance(block, Block)]


def mlps(model: Transformer) -> list[MLP | GatedMLP]:
    """Return the MLPs of a model's blocks; experts are none."""
    return [block.mlp for block in blocks(model) if isinstance(block.mlp, MLP | GatedMLP)]


def attentions(model: Transformer) -> list[Attention | SlicedAttention]:
    """Return the attentions of a model's blocks."""
    return [block.attention for block in blocks(model) if isinstance(block.attention, Attention | SlicedAttention)]
