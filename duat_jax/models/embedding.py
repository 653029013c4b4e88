"""Embeddings of texts and images: the first residual stream."""

from typing import final

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import InvalidInput
from duat_jax.models.config import Config, Image
from duat_jax.models.image_beside_text import after_the_whole, patches_of
from duat_jax.nn.linear import Linear, alike, computed_in, initial


@final
class TokenEmbedding(nnx.Module):
    """Add the embeddings of a token, its position and its segment: `x_t = c E[id_t] + P[p_t] + S[segment_t]`.

    The position `p_t` is the number of real tokens before the token, so that padding moves no token.

    Args:
        config: the parts of the model.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; `None` gives zeros.
    """

    def __init__(self, config: Config, *, dtype: DTypeLike, rngs: nnx.Rngs | None) -> None:
        features = config.embedding_features or config.features

        def table(rows: int) -> nnx.Param:
            return initial((rows, features), dtype, rngs)

        self.config = config
        self.token = table(config.vocab)
        self.position = table(config.position_offset + config.positions) if config.position_embedding else None
        self.segment = table(config.segments) if config.segments else None

    def __call__(
        self,
        ids: Int[Array, "... tokens"],
        segments: Int[Array, "... tokens"] | None = None,
        mask: Bool[Array, "... tokens"] | None = None,
    ) -> Float[Array, "... tokens features"]:
        """Return the embeddings of a text."""
        if ids.shape[-1] > self.config.positions:
            raise InvalidInput(
                f"the text has {ids.shape[-1]} tokens, but the model's context is {self.config.positions}: shorten it"
            )
        x = self.token[...][ids]
        x = x.astype(computed_in(x.dtype))
        if self.config.embedding_scale != 1.0:
            x = x * jnp.asarray(self.config.embedding_scale, x.dtype)
        if self.position is not None:
            x = x + alike(self.position[...][self._places(ids, mask)], x)
        if self.segment is not None:
            x = x + alike(self.segment[...][jnp.zeros_like(ids) if segments is None else segments], x)
        return x

    def _places(
        self, ids: Int[Array, "... tokens"], mask: Bool[Array, "... tokens"] | None
    ) -> Int[Array, "... tokens"]:
        """Return each token's row in the table of positions; a token that isn't counted has the first row or less."""
        first, uncounted = self.config.position_offset, self.config.uncounted
        if mask is None and uncounted is None:
            return first + jnp.arange(ids.shape[-1])
        real = jnp.ones(ids.shape, bool) if mask is None else mask
        if uncounted is None:
            return first + jnp.maximum(jnp.cumsum(real, -1), 1) - 1
        counted = real & (ids != uncounted)
        return first + jnp.where(counted, jnp.cumsum(counted, -1), 0) - 1


@final
class PatchRows(nnx.Module):
    """Take the pixels of every patch as they are, after zeros for the tokens of the whole image.

    Args:
        image: the sizes.
    """

    def __init__(self, image: Image) -> None:
        self.image = image

    def __call__(self, pixels: Float[Array, "... channels height width"]) -> Float[Array, "... tokens entries"]:
        """Return the first stream of an image that PyTorch's code reads."""
        return after_the_whole(self.image, patches_of(self.image, pixels))


@final
class PatchEmbedding(nnx.Module):
    """Project every patch of an image, prepend a token for the whole image, and add position embeddings.

    Args:
        config: the parts of the model.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; `None` gives zeros.

    Source: Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021, Eq. 1.
    """

    def __init__(self, config: Config, *, dtype: DTypeLike, rngs: nnx.Rngs | None) -> None:
        if config.image is None:
            raise InvalidInput("the model reads no images")
        self.image: Image = config.image
        inputs = self.image.channels * self.image.patch_height * self.image.patch_width
        self.patch = Linear(inputs, config.features, "patch", dtype=dtype, rngs=rngs)
        self.whole = initial((config.features,), dtype, rngs)
        self.position = initial((config.positions, config.features), dtype, rngs)

    def __call__(self, pixels: Float[Array, "... channels height width"]) -> Float[Array, "... tokens features"]:
        """Return the embeddings of an image: the whole image first, then its patches row by row."""
        x = patches_of(self.image, pixels)
        x = self.patch(x.astype(computed_in(self.patch.kernel.dtype)))
        whole = jnp.broadcast_to(alike(self.whole[...], x), (*x.shape[:-2], 1, x.shape[-1]))
        return jnp.concatenate([whole, x], -2) + alike(self.position[...], x)
