"""A stack of equal blocks with the residual stream marked at every layer boundary."""

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from duat_jax.marks import stream
from duat_jax.nn.attention import attention_mask
from duat_jax.nn.block import BLOCKS


class Stack(nnx.Module):
    """Run `layers` blocks of one arrangement after each other.

    Args:
        block: a name in `BLOCKS`.
        layers: number of blocks.
        features: width of the residual stream.
        heads: number of attention heads.
        neurons: number of hidden units of each MLP.
        activation: a name in `duat_jax.nn.ACTIVATIONS`.
        causal: whether a token sees only itself and what came before.
        epsilon: of the normalisation.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> stack = Stack("pre-norm", layers=2, features=8, heads=2, neurons=16, rngs=nnx.Rngs(0))
        >>> stack(jnp.ones((3, 8))).shape
        (3, 8)
    """

    def __init__(
        self,
        block: str,
        *,
        layers: int,
        features: int,
        heads: int,
        neurons: int,
        activation: str = "gelu",
        causal: bool = True,
        epsilon: float = 1e-5,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        self.causal = causal
        self.blocks = nnx.List(
            BLOCKS[block](features, heads, neurons, activation, dtype=dtype, rngs=rngs, epsilon=epsilon)
            for _ in range(layers)
        )

    def __call__(
        self, x: Float[Array, "... tokens features"], padding: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Run the blocks.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            padding: true for real tokens, `[..., tokens]`.
        """
        mask = attention_mask(x.shape[-2], causal=self.causal, padding=padding)
        x = stream(x, "layer")
        for block in self.blocks:
            x = stream(block(x, mask), "layer")
        return x
