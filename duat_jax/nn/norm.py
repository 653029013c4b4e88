"""Layer normalisation with its per-token scale held."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from duat_jax.marks import hold, offset


class LayerNorm(nnx.Module):
    """Normalise every token: `LN(x) = (x − mean(x)) · s(x) · γ + β`, affine once the scale `s(x)` is held.

    Args:
        features: size of the last axis.
        name: prefix of the names of the held scale and of the offset `β`.
        epsilon: added to the variance.
        dtype: dtype of the parameters.
    """

    def __init__(self, features: int, name: str, *, epsilon: float = 1e-5, dtype: DTypeLike = jnp.float32) -> None:
        self.name = name
        self.epsilon = epsilon
        self.scale = nnx.Param(jnp.ones(features, dtype))
        self.bias = nnx.Param(jnp.zeros(features, dtype))

    def __call__(self, x: Float[Array, "... features"]) -> Float[Array, "... features"]:
        """Normalise the last axis.

        Args:
            x: `[..., features]`.
        """
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        scale = hold(jax.lax.rsqrt(variance + self.epsilon), f"{self.name}.scale")
        return centred * scale * self.scale[...] + offset(self.bias[...], f"{self.name}.offset")
