"""The Transformer of all checkpoint families: embedding, stack and read-out."""

from pathlib import Path
from typing import Any, final

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Shaped
from tokenizers import Tokenizer

from duat_jax.errors import DuatError, InvalidInput
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config
from duat_jax.models.embedding import PatchEmbedding, PatchRows, TokenEmbedding
from duat_jax.models.head import Logits, ReadOut
from duat_jax.models.ids import require_ids
from duat_jax.models.image_beside_text import before_text, numbered
from duat_jax.models.mask import require_mask
from duat_jax.models.tokenizer import OwnTokenizer
from duat_jax.models.units import streams_of
from duat_jax.nn.config import make_block, make_norm
from duat_jax.nn.linear import Linear
from duat_jax.nn.stack import Stack


@final
class Transformer(nnx.Module):
    """A language model, an encoder or a vision model, built from its configuration.

    `x_0 = embed(ids)`, `x_L = hidden(x_0)`, and `output(x_0)` are the logits that are read from it.

    Args:
        config: the parts.
        dtype: dtype of the parameters; everything is computed in float32 at least.
        rngs: source of the random initial weights; `None` gives zeros, for a skeleton that is to be filled.
        stack: the layers, `stack(x, mask)`; those of the configuration if absent.

    Raises:
        DuatError: naming every problem of the configuration.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from duat_jax.models.config import Head
        >>> from duat_jax.nn import BlockConfig
        >>> block = BlockConfig(arrangement="pre-norm", features=8, heads=2, neurons=16)
        >>> head = Head(kind="next token", outputs=11, tied=True)
        >>> config = Config(family="gpt2", blocks=(block, block), vocab=11, positions=8, head=head)
        >>> Transformer(config, rngs=nnx.Rngs(0))(jnp.array([1, 2, 3])).shape
        (3, 11)
    """

    def __init__(
        self, config: Config, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs | None, stack: Any = None
    ) -> None:
        if problems := config.problems():
            raise DuatError("; ".join(problems))
        first = config.blocks[0]
        self.config = config
        self.embedding: TokenEmbedding | PatchEmbedding | PatchRows
        if config.image is not None and config.marks is not None:
            self.embedding = PatchRows(config.image)
        else:
            embedding = TokenEmbedding if config.image is None else PatchEmbedding
            self.embedding = embedding(config, dtype=dtype, rngs=rngs)
        self.embedding_norm = (
            make_norm(first, "embedding_norm", dtype, config.embedding_features) if config.embedding_norm else None
        )
        self.projection = (
            None
            if config.embedding_features is None
            else Linear(config.embedding_features, config.features, "projection", dtype=dtype, rngs=rngs)
        )
        if stack is None:
            stack = Stack(make_block(block, dtype=dtype, rngs=rngs) for block in config.blocks)
        self.stack: Any = stack
        self.final_norm = make_norm(first, "final_norm", dtype) if config.final_norm else None
        self.head = ReadOut(config, dtype=dtype, rngs=rngs)
        self._tokenizer = OwnTokenizer(None)

    def __repr__(self) -> str:
        return f"Transformer({self.config})"

    __str__ = __repr__

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model's checkpoint, or one that was given in its place.

        Raises:
            BadCheckpoint: if there is none, or it can't be read.
        """
        return self._tokenizer.value

    @tokenizer.setter
    def tokenizer(self, source: Tokenizer | Path | None) -> None:
        self._tokenizer = OwnTokenizer(source)

    def embed(
        self, inputs: Any, segments: Any = None, mask: Bool[Array, "... tokens"] | None = None, pixels: Any = None
    ) -> Float[Array, "... tokens features"]:
        """Return the embeddings `x_0`; of an image before a text its patches.

        Args:
            inputs: token ids, `[..., tokens]`; or for a vision model pixels, `[..., channels, height, width]`.
            segments: the segment of each token, `[..., tokens]`; all of segment 0 if absent.
            mask: true for real tokens, whose positions are counted, `[..., tokens]`; all if absent.
            pixels: of an image that the model reads before its text, `[..., channels, height, width]`.

        Raises:
            InvalidInput: if an id is outside the vocabulary, a text is longer than the model's context, or an image of
                another size. Within `jax.jit`, where ids aren't known, one outside is read as one inside.
        """
        inputs = _array(inputs)
        if isinstance(self.embedding, PatchEmbedding | PatchRows):
            return self.embedding(inputs)
        # JAX would read an id above the table as the last one, and count a negative one from there.
        first = 0 if self.config.beside is None else self.config.beside.tokens
        require_ids(self.config, {"the text": inputs[..., first:]}, None if mask is None else mask[..., first:])
        x = self.embedding(inputs, segments, mask)
        return x if self.config.beside is None else before_text(self.config.beside, pixels, x)

    def first(self, x: Float[Array, "... tokens _"]) -> Float[Array, "... tokens features"]:
        """Return the input of the first block: the embeddings, normalised and projected as configured.

        Args:
            x: the embeddings.
        """
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        return x if self.projection is None else self.projection(x)

    def stream(
        self, x: Float[Array, "... tokens _"], layers: int, mask: Shaped[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Return the residual stream after some of the layers.

        Args:
            x: the embeddings, `[..., tokens, features]`.
            layers: the number of layers before it.
            mask: true for real tokens, `[..., tokens]`; of two texts, 1 for the encoder's and 2 for the decoder's.
        """
        if self.config.marks is not None:
            return self.stack.until(streams_of(self.config, layers)[0], x, mask)
        return Stack(self.stack.blocks[:layers])(self.first(x), mask)

    def hidden(
        self, x: Float[Array, "... tokens _"], mask: Shaped[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Return the last hidden states for the embeddings `x_0`.

        Args:
            x: the embeddings, `[..., tokens, features]`.
            mask: true for real tokens, `[..., tokens]`; of two texts, 1 for the encoder's and 2 for the decoder's.
        """
        x = self.stack(self.first(x), mask)
        return x if self.final_norm is None else self.final_norm(x)

    def states(
        self, x: Float[Array, "... tokens _"], mask: Shaped[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens _"]:
        """Return the states from which logits are read: the last hidden states, prepared by the head.

        Args:
            x: the embeddings, `[..., tokens, features]`.
            mask: true for real tokens, `[..., tokens]`; of two texts, 1 for the encoder's and 2 for the decoder's.
        """
        return self.head.states(self.hidden(x, mask), mask)

    def logits_at(self, state: Float[Array, "features"], outputs: Int[Array, "outputs"] | None = None) -> Logits:
        """Return the logits at one position, with the parameters of their read-out.

        Args:
            state: its state, as `states` gives it, `[features]`.
            outputs: the numbers of those that are wanted; all if absent.
        """
        return self.head.at(state, self._token_embedding, outputs)

    def logits_of(
        self, states: Float[Array, "places features"], tokens: Int[Array, "*each places"]
    ) -> Float[Array, "*each places"]:
        """Return some of the logits, without computing the others.

        Args:
            states: of several positions, as `states` gives them, `[places, features]`.
            tokens: whose logits at each, `[*each, places]`.
        """
        return self.head.logits_of(states, tokens, self._token_embedding)

    @property
    def unembedding(self) -> Float[Array, "outputs features"]:
        """The matrix whose rows read logits from the states, before bias and cap."""
        return self.head.rows(self._token_embedding)

    @property
    def _token_embedding(self) -> Array | None:
        return self.embedding.token[...] if isinstance(self.embedding, TokenEmbedding) else None

    def output(
        self, x: Float[Array, "... tokens _"], mask: Shaped[Array, "... tokens"] | None = None
    ) -> Float[Array, "..."]:
        """Return the model's output for the embeddings `x_0`: logits or hidden states.

        Logits are `[..., tokens, outputs]`, those of classes `[..., outputs]`, hidden states `[..., tokens, features]`.

        Args:
            x: the embeddings, `[..., tokens, features]`.
            mask: true for real tokens, `[..., tokens]`; of two texts, 1 for the encoder's and 2 for the decoder's.
        """
        states, kind = self.states(x, mask), self.config.head.kind
        if kind == "hidden":
            return states
        if kind == "classes":
            states = self.head.pooled(states, mask)
        return self.head.logits(states, self._token_embedding)

    def __call__(
        self, inputs: Any, mask: Bool[Array, "... tokens"] | None = None, segments: Any = None, pixels: Any = None
    ) -> Float[Array, "..."]:
        """Return logits, or an encoder's last hidden states, by the plain forward pass.

        Args:
            inputs: token ids, `[..., tokens]`; or for a vision model pixels, `[..., channels, height, width]`.
            mask: true for real tokens, false for padding on either side, `[..., tokens]`. Learned positions are counted
                over real tokens.
            segments: the segment of each token, `[..., tokens]`; all of segment 0 if absent. Where an encoder's text
                stands before its decoder's, 0 for the one and 1 for the other.
            pixels: of an image that the model reads before its text, `[..., channels, height, width]`; its tokens stand
                first among `inputs`, with any id.

        Raises:
            DuatError: if the mask isn't boolean.
            InvalidInput: if the mask hides tokens that aren't padding, as an inverted one does. Within `jax.jit`, where
                the tokens aren't known yet, the result is NaN instead.
        """
        inputs = _array(inputs)
        fits = None if mask is None or self.config.image is not None else require_mask(inputs, mask)
        if self.config.head.filler is not None:
            # A causal model's real tokens don't see the tokens after them.
            real = jnp.flip(jnp.cumsum(jnp.flip(inputs != self.config.head.filler, -1), -1), -1) > 0
            real = real.at[..., 0].set(True)  # a text of padding alone
            mask = real if mask is None else mask & real
        x = self.embed(inputs, segments, mask, pixels)
        if self.config.beside is not None:
            mask = numbered(self.config.beside, inputs) * (1 if mask is None else mask)
        elif self.config.decoder_start is not None and segments is not None:
            mask = (jnp.asarray(segments) + 1) * (1 if mask is None else mask)
        output = self.output(x, mask)
        return output if fits is None else jnp.where(fits, output, jnp.nan)


def _array(inputs: Any) -> Array:
    try:
        return jnp.asarray(inputs)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"a model reads an array of token ids or of pixels, not {quoted(inputs)}: duat.load_tokenizer(...) makes"
            " token ids of a text, tokenizer.encode(text).ids"
        ) from None
