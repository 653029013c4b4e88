"""A linear layer whose bias is accounted for by name."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from duat_jax.marks import offset

PRECISION = jax.lax.Precision.HIGHEST
"""Exactness is promised for every dtype, so no accelerator may round float32 products to fewer bits."""

INITIAL_SCALE = 0.02


class Linear(nnx.Module):
    """Apply `y = x W + b` to the last axis.

    Acting on `vec(x)` this is `W' = I_N ⊗ Wᵀ` (Wang & Li, Eq. 5, for features instead of rows).

    Args:
        inputs: size of the last axis of `x`.
        outputs: size of the last axis of `y`.
        name: prefix of the bias's name.
        bias: whether there is a bias.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights.
    """

    def __init__(
        self, inputs: int, outputs: int, name: str, *, bias: bool = True, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs
    ) -> None:
        self.name = name
        self.kernel = nnx.Param(INITIAL_SCALE * jax.random.normal(rngs.params(), (inputs, outputs), dtype))
        self.bias = nnx.Param(jnp.zeros(outputs, dtype)) if bias else None

    def multiply(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Return `x W`.

        Args:
            x: `[..., inputs]`.
        """
        return jnp.matmul(x, self.kernel[...], precision=PRECISION)

    def add_bias(self, y: Float[Array, "... outputs"]) -> Float[Array, "... outputs"]:
        """Return `y + b`, the bias marked as an offset.

        Args:
            y: `[..., outputs]`.
        """
        return y if self.bias is None else y + offset(self.bias[...], f"{self.name}.bias")

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Return `x W + b`.

        Args:
            x: `[..., inputs]`.
        """
        return self.add_bias(self.multiply(x))
