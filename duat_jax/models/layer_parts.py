"""A model's blocks, MLPs and attentions, in the order of its layers."""

from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import Attention, SlicedAttention
from duat_jax.nn.block import Block
from duat_jax.nn.mlp import MLP, GatedMLP


def blocks(model: Transformer) -> list[Block]:
    """Return a model's blocks.

    Args:
        model: the model.
    """
    return [block for block in model.stack.blocks if isinstance(block, Block)]


def mlps(model: Transformer) -> list[MLP | GatedMLP]:
    """Return the MLPs of a model's blocks; experts are none.

    Args:
        model: the model.
    """
    return [block.mlp for block in blocks(model) if isinstance(block.mlp, MLP | GatedMLP)]


def attentions(model: Transformer) -> list[Attention | SlicedAttention]:
    """Return the attentions of a model's blocks.

    Args:
        model: the model.
    """
    return [block.attention for block in blocks(model) if isinstance(block.attention, Attention | SlicedAttention)]
