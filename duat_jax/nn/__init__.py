"""Flax NNX blocks with marks; a module is a pytree and goes through JAX's transformations as it is."""

from duat_jax.nn.attention import Attention, SlicedAttention, attention_mask
from duat_jax.nn.block import BLOCKS, PaperBlock, PaperResidualBlock, ParallelBlock, PostNormBlock, PreNormBlock
from duat_jax.nn.linear import Linear
from duat_jax.nn.mlp import ACTIVATIONS, MLP
from duat_jax.nn.norm import LayerNorm
from duat_jax.nn.stack import Stack

__all__ = [
    "ACTIVATIONS",
    "BLOCKS",
    "MLP",
    "Attention",
    "LayerNorm",
    "Linear",
    "PaperBlock",
    "PaperResidualBlock",
    "ParallelBlock",
    "PostNormBlock",
    "PreNormBlock",
    "SlicedAttention",
    "Stack",
    "attention_mask",
]
