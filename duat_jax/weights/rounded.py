"""A model whose matrices are rounded to a few bits."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.models.layer_parts import written_out
from duat_jax.models.transformer import Transformer

FEWEST, MOST = 2, 16
"""The numbers of bits that there are."""


def rounded(model: Transformer, bits: int) -> Transformer:
    """Round every matrix of a model's layers to the nearest of a few numbers, output by output.

        ŵ_ij = s_j round(w_ij / s_j),    s_j = max_i |w_ij| / (2^{b−1} − 1)

    Embeddings, norms and biases stay as they are.

    Args:
        model: the model; it stays as it is.
        bits: `b`, the number of bits of a weight, from 2 to 16.

    Raises:
        DuatError: for another number of bits.

    Example:
        >>> import duat_jax as duat
        >>> kernel = rounded(duat.load(), 2).stack.blocks[0].mlp.input.kernel[...][:, 0]
        >>> len(set(kernel.tolist()))
        3

    Source: symmetric rounding to nearest for each channel, as in Jacob et al., "Quantization and Training of Neural
    Networks for Efficient Integer-Arithmetic-Only Inference", 2018.
    """
    if not FEWEST <= bits <= MOST:
        raise DuatError(f"bits is {bits}: give a number of bits from {FEWEST} to {MOST}")
    found = written_out(model)
    found.stack = jax.tree.map(lambda leaf: _rounded(leaf, bits) if leaf.ndim > 1 else leaf, found.stack)
    return found


def _rounded(kernel: Float[Array, "... inputs outputs"], bits: int) -> Float[Array, "... inputs outputs"]:
    levels = 2 ** (bits - 1) - 1
    largest = jnp.abs(kernel).max(-2, keepdims=True)
    step = jnp.where(largest == 0, 1, largest) / levels
    return (jnp.round(kernel / step) * step).astype(kernel.dtype)
