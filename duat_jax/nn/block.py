"""The five arrangements of attention and MLP around the residual stream."""

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from duat_jax.nn.attention import Attention, SlicedAttention
from duat_jax.nn.mlp import MLP
from duat_jax.nn.norm import LayerNorm


class PaperBlock(nnx.Module):
    """The papers' block (Eq. 30): `y = A x`, `y + FFN(y)`, with sliced heads and no attention residual.

    Args:
        features: width of the residual stream.
        heads: number of attention heads.
        neurons: number of hidden units of the MLP.
        activation: a name in `duat_jax.nn.ACTIVATIONS`.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights.
        epsilon: of the normalisation, in the blocks that have one.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        neurons: int,
        activation: str = "gelu",
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
        epsilon: float = 1e-5,
    ) -> None:
        del epsilon
        self.attention = SlicedAttention(features, heads, dtype=dtype, rngs=rngs)
        self.mlp = MLP(features, neurons, activation, dtype=dtype, rngs=rngs)

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... #queries keys"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Run the block.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            mask: which keys each query may see, `[..., queries, keys]`.
        """
        x = self.attention(x, mask)
        return x + self.mlp(x)


class PaperResidualBlock(PaperBlock):
    """The papers' block with an attention residual: `y = x + A x`, `y + FFN(y)`."""

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... #queries keys"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Run the block.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            mask: which keys each query may see, `[..., queries, keys]`.
        """
        x = x + self.attention(x, mask)
        return x + self.mlp(x)


class PreNormBlock(nnx.Module):
    """GPT-2's block: `y = x + A LN₁(x)`, `y + FFN(LN₂(y))`; arguments as for `PaperBlock`."""

    def __init__(
        self,
        features: int,
        heads: int,
        neurons: int,
        activation: str = "gelu",
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
        epsilon: float = 1e-5,
    ) -> None:
        self.norm_1 = LayerNorm(features, "norm_1", epsilon=epsilon, dtype=dtype)
        self.attention = Attention(features, heads, dtype=dtype, rngs=rngs)
        self.norm_2 = LayerNorm(features, "norm_2", epsilon=epsilon, dtype=dtype)
        self.mlp = MLP(features, neurons, activation, dtype=dtype, rngs=rngs)

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... #queries keys"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Run the block.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            mask: which keys each query may see, `[..., queries, keys]`.
        """
        x = x + self.attention(self.norm_1(x), mask)
        return x + self.mlp(self.norm_2(x))


class PostNormBlock(PreNormBlock):
    """BERT's block: `y = LN₁(x + A x)`, `LN₂(y + FFN(y))`."""

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... #queries keys"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Run the block.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            mask: which keys each query may see, `[..., queries, keys]`.
        """
        x = self.norm_1(x + self.attention(x, mask))
        return self.norm_2(x + self.mlp(x))


class ParallelBlock(PreNormBlock):
    """GPT-NeoX's block: `x + A LN₁(x) + FFN(LN₂(x))`."""

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... #queries keys"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Run the block.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            mask: which keys each query may see, `[..., queries, keys]`.
        """
        return x + self.attention(self.norm_1(x), mask) + self.mlp(self.norm_2(x))


BLOCKS = {
    "paper": PaperBlock,
    "paper-residual": PaperResidualBlock,
    "pre-norm": PreNormBlock,
    "post-norm": PostNormBlock,
    "parallel": ParallelBlock,
}
