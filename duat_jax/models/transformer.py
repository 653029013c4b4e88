"""The Transformer that every checkpoint family is loaded into: embedding, stack, read-out."""

from typing import final

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import BadText, DuatError
from duat_jax.models.config import Config
from duat_jax.nn.config import make_norm, make_stack
from duat_jax.nn.linear import PRECISION, initial


@final
class Transformer(nnx.Module):
    """A language model (for example GPT-2) or an encoder (for example BERT), put together from its configuration.

    `x_0 = embed(ids)`, `x_L = hidden(x_0)`; a language model's logits are `x_L Eᵀ` with the unembedding `E`.

    Args:
        config: the parts.
        dtype: dtype of the parameters and of everything computed from them.
        rngs: source of the random initial weights; zeros without it, for a skeleton that is to be filled.

    Raises:
        DuatError: naming everything that is wrong with the configuration.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from duat_jax.nn import BlockConfig
        >>> block = BlockConfig(arrangement="pre-norm", features=8, heads=2, neurons=16)
        >>> config = Config(family="gpt2", block=block, layers=2, vocab=11, positions=8)
        >>> Transformer(config, rngs=nnx.Rngs(0))(jnp.array([1, 2, 3])).shape
        (3, 11)
    """

    def __init__(self, config: Config, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs | None) -> None:
        if problems := config.problems():
            raise DuatError("; ".join(problems))
        features = config.block.features

        def table(*shape: int, present: bool = True) -> nnx.Param | None:
            return initial(shape, dtype, rngs) if present else None

        self.config = config
        self.token_embedding = initial((config.vocab, features), dtype, rngs)
        self.position_embedding = table(config.positions, features, present=config.position_embedding)
        self.segment_embedding = table(features, present=config.segment_embedding)
        self.embedding_norm = make_norm(config.block, "embedding_norm", dtype) if config.embedding_norm else None
        self.stack = make_stack(
            config.block, layers=config.layers, causal=config.causal, window=config.window, dtype=dtype, rngs=rngs
        )
        self.final_norm = make_norm(config.block, "final_norm", dtype) if config.final_norm else None
        self.separate_unembedding = table(config.vocab, features, present=not config.tied)

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
        x = self.token_embedding[...][ids]
        if self.position_embedding is not None:
            x = x + self.position_embedding[: ids.shape[-1]]
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
        return x if self.config.head == "hidden" else jnp.matmul(x, self.unembedding.T, precision=PRECISION)

    def __call__(
        self, ids: Int[Array, "... tokens"], padding: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens outputs"]:
        """Return a language model's logits, or an encoder's last hidden states: the plain forward pass.

        Args:
            ids: token ids, `[..., tokens]`.
            padding: true for real tokens, `[..., tokens]`.
        """
        return self.output(self.embed(ids), padding)
