"""LayerNorm and RMSNorm, with the scale of each token held."""

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from duat_jax.nn.linear import alike
from duat_jax.transform.marks import hold, offset


def _held_scale(x: Float[Array, "... features"], epsilon: float, name: str) -> Float[Array, "... 1"]:
    """Return `s(x) = 1/√(mean(x²) + ε)`, held."""
    return hold(jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + epsilon), f"{name}.scale")


@final
class LayerNorm(nnx.Module):
    """Normalise every token: `LN(x) = (x − mean(x)) · s(x) · γ + β`, affine once the scale `s(x)` is held.

    Args:
        features: size of the last axis.
        name: prefix of the names of the held scale and of the offset `β`.
        epsilon: added to the variance.
        bias: whether there is an offset `β`.
        dtype: dtype of the parameters.
    """

    def __init__(
        self, features: int, name: str, *, epsilon: float = 1e-5, bias: bool = True, dtype: DTypeLike = jnp.float32
    ) -> None:
        self.name = name
        self.epsilon = epsilon
        self.scale = nnx.Param(jnp.ones(features, dtype))
        self.bias = nnx.Param(jnp.zeros(features, dtype)) if bias else None

    def __call__(self, x: Float[Array, "... features"]) -> Float[Array, "... features"]:
        """Normalise the last axis.

        Args:
            x: `[..., features]`.
        """
        centred = x - x.mean(-1, keepdims=True)
        y = centred * _held_scale(centred, self.epsilon, self.name) * alike(self.scale[...], x)
        return y if self.bias is None else y + offset(alike(self.bias[...], x), f"{self.name}.offset")


@final
class RMSNorm(nnx.Module):
    """Scale every token: `RMS(x) = x · s(x) · (c + γ)` with `s(x) = 1/√(mean(x²) + ε)`, linear once `s(x)` is held.

    Args:
        features: size of the last axis.
        name: prefix of the name of the held scale.
        epsilon: added to the mean square.
        weight_offset: `c`, zero in most models; one where the checkpoint stores `γ − 1` (Gemma).
        dtype: dtype of the parameters.

    Source: Zhang & Sennrich, "Root Mean Square Layer Normalization", 2019.
    """

    def __init__(
        self,
        features: int,
        name: str,
        *,
        epsilon: float = 1e-6,
        weight_offset: float = 0.0,
        dtype: DTypeLike = jnp.float32,
    ) -> None:
        self.name = name
        self.epsilon = epsilon
        self.weight_offset = weight_offset
        self.scale = nnx.Param(jnp.full(features, 1.0 - weight_offset, dtype))

    def __call__(self, x: Float[Array, "... features"]) -> Float[Array, "... features"]:
        """Scale the last axis.

        Args:
            x: `[..., features]`.
        """
        return x * _held_scale(x, self.epsilon, self.name) * (self.weight_offset + alike(self.scale[...], x))
