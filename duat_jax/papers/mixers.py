"""Ways to mix tokens in place of attention: convolutions, and a pattern by distance alone."""

from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from duat_jax.errors import InvalidInput
from duat_jax.models.layer_parts import blocks, written_out
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION, Linear, alike, initial
from duat_jax.papers.validation import refuse, too_small
from duat_jax.transform.marks import offset

Mask = Bool[Array, "... tokens"] | None
"""The tokens that are read, or all of them if absent."""


def replace_attention(model: Transformer, mixer: Callable[[Any], Callable[..., Array]]) -> Transformer:
    """Return a copy of a model in which something else mixes the tokens: `y = x + A N₁(x)` with another `A`.

    All other weights are kept. Closed forms, contributions and differences of the copy are exact as the model's are.

    Args:
        model: the model.
        mixer: is given the attention of each layer, and returns what stands in its place: a Flax NNX module
            `mixed(x, mask)` from a stream, `[..., tokens, features]`, to one of the same shape.

    Returns:
        The model with the mixers, which are to be trained.

    Raises:
        InvalidInput: if the model has no layers whose attention can be replaced, or a mixer is no module, can't read
            the model's stream, or returns another shape.

    Example:
        >>> import duat_jax as duat
        >>> from flax import nnx
        >>> rngs = nnx.Rngs(0)
        >>> model = duat.papers.replace_attention(
        ...     duat.load(), lambda attention: duat.papers.TokenConvolution(192, 4, rngs=rngs)
        ... )
        >>> x = model.embed(model.tokenizer.encode("for i in").ids)
        >>> duat.decompose(lambda x: model.hidden(x)[-1, 0], x).completeness.verdict
        'holds'

    Source: Wang & Li, "Dynamic Universal Approximation Theory", Appendix C, Figure 5.
    """
    found = blocks(copy := written_out(model)) if isinstance(model, Transformer) else []
    if not found:
        raise InvalidInput("the model has no layers with an attention of duat.nn: give a duat.models.Transformer")
    for block in found:
        mixed = mixer(block.attention)
        if not isinstance(mixed, nnx.Module) or not callable(mixed):
            raise InvalidInput(f"the mixer returns {mixed!r}: return a Flax NNX module of a stream and a mask")
        _require_shape(mixed, model.config.features, jax.tree.leaves(block)[0].dtype)
        block.attention = mixed
    return copy


def _require_shape(mixed: Callable[..., Array], features: int, dtype: DTypeLike) -> None:
    """Raise for a mixer that doesn't read a stream and a mask, and return a stream of the same shape."""
    stream, mask = jax.ShapeDtypeStruct((1, features), dtype), jax.ShapeDtypeStruct((1,), jnp.bool_)
    name = type(mixed).__name__
    try:
        shape = jax.eval_shape(mixed, stream, mask).shape
    except (TypeError, ValueError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInput(
            f"{name} doesn't mix a stream, [tokens, {features}], with a mask, [tokens]: {reason}; make it for"
            f" {features} features"
        ) from error
    if shape != stream.shape:
        raise InvalidInput(f"{name} returns {list(shape)} of a stream {[1, features]}: return the same shape")


def _text_first(
    mix: Callable[[Array], Array], x: Float[Array, "... tokens features"], mask: Mask
) -> Float[Array, "... tokens features"]:
    """Mix a text so that it begins with its first real token; the padding goes behind it, where no token sees it."""
    if mask is None:
        return mix(x)
    ahead = mask.argmax(-1, keepdims=True)

    def moved(x: Array, by: Array) -> Array:
        places = jnp.broadcast_to((jnp.arange(x.shape[-2]) + by) % x.shape[-2], x.shape[:-1])
        return jnp.take_along_axis(x, places[..., None], -2)

    return moved(mix(moved(x, ahead)), -ahead)


class Mixer(nnx.Module):
    """A module in the place of attention, whose `_mix` mixes the tokens of a text without padding before it."""

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Mask = None
    ) -> Float[Array, "... tokens features"]:
        """Mix the tokens.

        Args:
            x: the stream, `[..., tokens, features]`.
            mask: true for real tokens, `[..., tokens]`; the text begins with the first of them; all if absent.
        """
        if mask is not None and mask.shape[-1] != x.shape[-2]:
            raise InvalidInput(
                f"the mask is of {mask.shape[-1]} tokens and the text of {x.shape[-2]}: give all of them"
            )
        return _text_first(self._mix, x, mask)

    def _mix(self, x: Array) -> Array:
        raise NotImplementedError


def _earlier(x: Float[Array, "... tokens features"], distance: int) -> Float[Array, "... tokens features"]:
    """Return each token's neighbour some tokens before it, zero where there is none."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(distance, 0), (0, 0)])[..., : x.shape[-2], :]


@final
class TokenConvolution(Mixer):
    """A convolution along the tokens: `y_t = Σ_{j<k} x_{t−j} W_j + b`, with zeros before the first token.

    Args:
        features: width of the residual stream.
        kernel: `k`, the number of last tokens that a token sees, itself included.
        rngs: source of the random initial weights; zeros without it.

    Raises:
        InvalidInput: if a size isn't a positive integer.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> from flax import nnx
        >>> duat.papers.TokenConvolution(8, 3, rngs=nnx.Rngs(0))(jnp.ones((5, 8))).shape
        (5, 8)

    Source: Wang & Li, "Dynamic Universal Approximation Theory", Appendix C, Figure 5.
    """

    def __init__(self, features: int, kernel: int, *, rngs: nnx.Rngs | None) -> None:
        refuse(too_small(1, features=features, kernel=kernel))
        self.kernel = kernel
        self.output = Linear(kernel * features, features, "convolution", rngs=rngs)

    def _mix(self, x: Array) -> Array:
        return self.output(jnp.concatenate([_earlier(x, distance) for distance in range(self.kernel)], -1))


@final
class FeatureConvolution(Mixer):
    """A convolution along the features of all tokens so far: `y_{t,m} = Σ_{s≤t} Σ_j K_{t,s,j} x_{s,m+j} + b_t`.

    The tokens are what channels are in a convolution of images, so the kernel sees every token, but only some
    neighbouring features of each at a time. With `K_{t,s,j} = 0` for later tokens `s > t`, which aren't stored, it is
    causal.

    Args:
        tokens: length of the longest text, padding included; 16, 32, 64 and so on with `duat.explain`.
        kernel: the number of neighbouring features, an odd number.
        rngs: source of the random initial weights; zeros without it.

    Raises:
        InvalidInput: if a size isn't a positive integer, the kernel is even, or a text is longer than `tokens`.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> from flax import nnx
        >>> duat.papers.FeatureConvolution(16, 3, rngs=nnx.Rngs(0))(jnp.ones((5, 8))).shape
        (5, 8)

    Source: Wang & Li, "Dynamic Universal Approximation Theory", Appendix C, Figure 5.
    """

    def __init__(self, tokens: int, kernel: int, *, rngs: nnx.Rngs | None) -> None:
        even = [f"kernel is {kernel}: give an odd number of neighbouring features"] if kernel % 2 == 0 else []
        refuse(too_small(1, tokens=tokens, kernel=kernel) or even)
        self.weights = initial((tokens * (tokens + 1) // 2, kernel), jnp.float32, rngs)
        self.bias = nnx.Param(jnp.zeros(tokens, jnp.float32))

    def _mix(self, x: Array) -> Array:
        tokens, features = x.shape[-2:]
        _require_short(tokens, len(self.bias[...]))
        rows, columns = jnp.tril_indices(tokens)
        # The triangle row by row, so that a shorter text takes its beginning.
        seen = alike(self.weights[...], x)[: len(rows)]
        size = seen.shape[-1]
        dense = jnp.zeros((tokens, tokens, size), x.dtype).at[rows, columns].set(seen)
        padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(size // 2, size // 2)])
        near = jnp.stack([padded[..., j : j + features] for j in range(size)])
        mixed = jnp.einsum("qkj,j...km->...qm", dense, near, precision=PRECISION)
        return mixed + offset(alike(self.bias[...], x)[:tokens, None], "convolution.bias")


def _require_short(tokens: int, longest: int) -> None:
    """Raise for a text that is longer than a mixer was made for."""
    if tokens > longest:
        raise InvalidInput(
            f"the text has {tokens} tokens, padding included, but the mixer was made for {longest} at most: make it for"
            f" {tokens} or more"
        )


@final
class DistancePattern(Mixer):
    """A pattern of the tokens' distance alone: `Σ_h H_h x W_{V,h} W_{O,h}`, with `H_h = softmax(S_{h,q−k})`.

    The scores `S` are learned once and for all, and no input changes the pattern: a convolution as long as the text.

    Args:
        tokens: length of the longest text, padding included; 16, 32, 64 and so on with `duat.explain`.
        features: width of the residual stream.
        heads: number of heads, a divisor of `features`.
        rngs: source of the random initial weights; zeros without it.

    Raises:
        InvalidInput: if a size isn't a positive integer, heads don't divide the features, or a text is longer than
            `tokens`.

    Example:
        >>> import duat_jax as duat
        >>> duat.papers.DistancePattern(16, 8, 2, rngs=None).pattern(2)[0].tolist()
        [[1.0, 0.0], [0.5, 0.5]]

    Source: as `H` of Wang & Li, "Dynamic Universal Approximation Theory", Eq. 7, without its dependence on the input.
    """

    def __init__(self, tokens: int, features: int, heads: int, *, rngs: nnx.Rngs | None) -> None:
        wrong = too_small(1, tokens=tokens, features=features, heads=heads)
        refuse(wrong or ([f"{heads} heads don't divide {features} features"] if features % heads else []))
        self.scores = initial((heads, tokens), jnp.float32, rngs)
        self.value = Linear(features, features, "attention.value", rngs=rngs)
        self.output = Linear(features, features, "attention.output", rngs=rngs)

    def pattern(self, tokens: int) -> Float[Array, "heads queries keys"]:
        """Return the pattern of a text.

        Args:
            tokens: its length.
        """
        _require_short(tokens, self.scores[...].shape[-1])
        places = jnp.arange(tokens)
        distances = places[:, None] - places
        scores = self.scores[...][:, jnp.maximum(distances, 0)]
        return jax.nn.softmax(jnp.where(distances >= 0, scores, -jnp.inf))

    def _mix(self, x: Array) -> Array:
        values = self.value(x).reshape(*x.shape[:-1], len(self.scores[...]), -1)
        mixed = jnp.einsum("hqk,...khd->...qhd", alike(self.pattern(x.shape[-2]), x), values, precision=PRECISION)
        return self.output(mixed.reshape(x.shape))


@final
class NoMixing(nnx.Module):
    """Zeros in the place of attention, so that no token sees another one: `y = 0`.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> float(jnp.abs(duat.papers.NoMixing()(jnp.ones((5, 8)))).max())
        0.0
    """

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Mask = None
    ) -> Float[Array, "... tokens features"]:
        """Return zeros.

        Args:
            x: the stream, `[..., tokens, features]`.
            mask: true for real tokens, which changes nothing.
        """
        return jnp.zeros_like(x)
