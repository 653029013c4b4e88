"""The Transformer that every checkpoint family is loaded into: embedding, stack, read-out."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import BadText
from duat_jax.nn.linear import INITIAL_SCALE, PRECISION
from duat_jax.nn.norm import LayerNorm
from duat_jax.nn.stack import Stack


@dataclass(frozen=True)
class Config:
    """The shape of a Transformer.

    Args:
        family: the checkpoint family, for example `"gpt2"`.
        block: arrangement of its blocks, a name in `duat_jax.nn.BLOCKS`.
        causal: whether it is a causal language model; otherwise it is an encoder.
        vocab: number of tokens it knows.
        positions: longest text in tokens.
        features: width of the residual stream.
        heads: attention heads per layer.
        layers: number of blocks.
        neurons: hidden units of each MLP.
        activation: a name in `duat_jax.nn.ACTIVATIONS`.
        epsilon: of the normalisation.
        tied: whether the unembedding is the token embedding.
    """

    family: str
    block: str
    causal: bool
    vocab: int
    positions: int
    features: int
    heads: int
    layers: int
    neurons: int
    activation: str
    epsilon: float
    tied: bool = True


class Transformer(nnx.Module):
    """A causal language model (pre-norm, GPT-2) or an encoder (post-norm, BERT).

    `x_0 = embed(ids)`, `x_L = hidden(x_0)`; a language model's logits are `x_L Eᵀ` with the unembedding `E`.

    Args:
        config: the shape.
        dtype: dtype of the parameters and of everything computed from them.
        rngs: source of the random initial weights.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> config = Config("gpt2", "pre-norm", True, vocab=11, positions=8, features=8, heads=2, layers=2,
        ...     neurons=16, activation="gelu", epsilon=1e-5)
        >>> Transformer(config, rngs=nnx.Rngs(0))(jnp.array([1, 2, 3])).shape
        (3, 11)
    """

    def __init__(self, config: Config, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs) -> None:
        def table(*shape: int) -> nnx.Param:
            return nnx.Param(INITIAL_SCALE * jax.random.normal(rngs.params(), shape, dtype))

        def norm(name: str) -> LayerNorm:
            return LayerNorm(config.features, name, epsilon=config.epsilon, dtype=dtype)

        self.config = config
        self.token_embedding = table(config.vocab, config.features)
        self.position_embedding = table(config.positions, config.features)
        # An encoder's embedding has a third summand, the same for every token of a single text, and a norm.
        self.segment_embedding = None if config.causal else table(config.features)
        self.embedding_norm = None if config.causal else norm("embedding_norm")
        self.stack = Stack(
            config.block,
            layers=config.layers,
            features=config.features,
            heads=config.heads,
            neurons=config.neurons,
            activation=config.activation,
            causal=config.causal,
            epsilon=config.epsilon,
            dtype=dtype,
            rngs=rngs,
        )
        self.final_norm = norm("final_norm") if config.causal else None
        self.separate_unembedding = None if config.tied else table(config.vocab, config.features)

    def embed(self, ids: Int[Array, "... tokens"]) -> Float[Array, "... tokens features"]:
        """Return `x_0`, the sum of the embeddings.

        Args:
            ids: token ids, `[..., tokens]`.

        Raises:
            BadText: if the text is longer than the model's context.
        """
        if ids.shape[-1] > self.config.positions:
            raise BadText(
                f"the text has {ids.shape[-1]} tokens, but the model's context is {self.config.positions}: shorten it"
            )
        x = self.token_embedding[...][ids] + self.position_embedding[: ids.shape[-1]]
        return x if self.segment_embedding is None else x + self.segment_embedding[...]

    def hidden(
        self, x: Float[Array, "... tokens features"], padding: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Return the last hidden states of the embeddings `x_0`: everything between embedding and unembedding.

        Args:
            x: the embeddings, `[..., tokens, features]`.
            padding: true for real tokens, `[..., tokens]`.
        """
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        x = self.stack(x, padding)
        return x if self.final_norm is None else self.final_norm(x)

    @property
    def unembedding(self) -> Float[Array, "vocab features"]:
        """The matrix whose rows read logits out of the last hidden state."""
        return (self.token_embedding if self.separate_unembedding is None else self.separate_unembedding)[...]

    def output(
        self, x: Float[Array, "... tokens features"], padding: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens outputs"]:
        """Return what the model returns, from the embeddings `x_0` on.

        Args:
            x: the embeddings, `[..., tokens, features]`.
            padding: true for real tokens, `[..., tokens]`.
        """
        x = self.hidden(x, padding)
        return jnp.matmul(x, self.unembedding.T, precision=PRECISION) if self.config.causal else x

    def __call__(
        self, ids: Int[Array, "... tokens"], padding: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens outputs"]:
        """Return a language model's logits, or an encoder's last hidden states: the plain forward pass.

        Args:
            ids: token ids, `[..., tokens]`.
            padding: true for real tokens, `[..., tokens]`.
        """
        return self.output(self.embed(ids), padding)
