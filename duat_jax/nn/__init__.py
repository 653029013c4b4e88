"""Flax NNX modules with marks; a module is a pytree and passes through all of JAX's transformations."""

from duat_jax.namespaces import public_names as _public_names
from duat_jax.nn.attention import Attention as Attention
from duat_jax.nn.attention import SlicedAttention as SlicedAttention
from duat_jax.nn.block import ARRANGEMENTS as ARRANGEMENTS
from duat_jax.nn.block import Block as Block
from duat_jax.nn.blockwise import attend as attend
from duat_jax.nn.config import BLOCKS as BLOCKS
from duat_jax.nn.config import BlockConfig as BlockConfig
from duat_jax.nn.config import make_block as make_block
from duat_jax.nn.config import make_stack as make_stack
from duat_jax.nn.convolution import Convolution as Convolution
from duat_jax.nn.convolution import ResidualConvolution as ResidualConvolution
from duat_jax.nn.experts import Experts as Experts
from duat_jax.nn.linear import Linear as Linear
from duat_jax.nn.mlp import ACTIVATIONS as ACTIVATIONS
from duat_jax.nn.mlp import MLP as MLP
from duat_jax.nn.mlp import GatedMLP as GatedMLP
from duat_jax.nn.norm import LayerNorm as LayerNorm
from duat_jax.nn.norm import RMSNorm as RMSNorm
from duat_jax.nn.pattern import attention_mask as attention_mask
from duat_jax.nn.pattern import attention_pattern as attention_pattern
from duat_jax.nn.pattern import soft_cap as soft_cap
from duat_jax.nn.position import Rotary as Rotary
from duat_jax.nn.position import Stretched as Stretched
from duat_jax.nn.position import Switched as Switched
from duat_jax.nn.position import rotary_frequencies as rotary_frequencies
from duat_jax.nn.scanned_stack import ScannedStack as ScannedStack
from duat_jax.nn.stack import Stack as Stack

__dir__ = _public_names(globals())
