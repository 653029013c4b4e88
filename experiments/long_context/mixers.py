"""Ways to mix tokens in place of attention: convolutions, a pattern by distance alone, and groups of tokens."""

from typing import Any, final

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from duat_jax.nn import Attention, Linear
from duat_jax.nn.linear import PRECISION, alike, initial
from duat_jax.nn.pattern import attention_mask, attention_pattern


def _earlier(x: Float[Array, "... tokens features"], distance: int) -> Float[Array, "... tokens features"]:
    """Return each token's neighbour some tokens before it, zero where there is none."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(distance, 0), (0, 0)])[..., : x.shape[-2], :]


@final
class TokenConvolution(nnx.Module):
    """Convolve along the tokens: `y_t = Σ_{j<k} x_{t−j} W_j + b`, with zeros before the first token.

    Args:
        features: width of the residual stream.
        kernel: `k`, the number of last tokens that a token sees, itself included.
        rngs: source of the random initial weights; zeros without it.
    """

    def __init__(self, features: int, kernel: int, *, rngs: nnx.Rngs | None) -> None:
        self.kernel = kernel
        self.output = Linear(kernel * features, features, "convolution", rngs=rngs)

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: None = None
    ) -> Float[Array, "... tokens features"]:
        """Mix the tokens."""
        return self.output(jnp.concatenate([_earlier(x, distance) for distance in range(self.kernel)], -1))


@final
class FeatureConvolution(nnx.Module):
    """Convolve along the features of all tokens so far: `y_{t,m} = Σ_{s≤t} Σ_j K_{t,s,j} x_{s,m+j} + b_t`.

    The tokens are what channels are in a convolution of images, so the kernel sees every token, but only some
    neighbouring features of each at a time (Wang & Li, Figure 5). With `K_{t,s,j} = 0` for later tokens `s > t`, which
    aren't stored, it is causal.

    Args:
        tokens: length of the longest text.
        kernel: the number of neighbouring features, an odd number.
        rngs: source of the random initial weights; zeros without it.
    """

    def __init__(self, tokens: int, kernel: int, *, rngs: nnx.Rngs | None) -> None:
        self.weights = initial((tokens * (tokens + 1) // 2, kernel), jnp.float32, rngs)
        self.bias = nnx.Param(jnp.zeros(tokens, jnp.float32))

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: None = None
    ) -> Float[Array, "... tokens features"]:
        """Mix the tokens."""
        tokens, features = x.shape[-2:]
        rows, columns = jnp.tril_indices(tokens)
        # The triangle row by row, so that a shorter text takes its beginning.
        seen = alike(self.weights[...], x)[: len(rows)]
        size = seen.shape[-1]
        dense = jnp.zeros((tokens, tokens, size), x.dtype).at[rows, columns].set(seen)
        padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(size // 2, size // 2)])
        near = jnp.stack([padded[..., j : j + features] for j in range(size)])
        mixed = jnp.einsum("qkj,j...km->...qm", dense, near, precision=PRECISION)
        return mixed + alike(self.bias[...], x)[:tokens, None]


@final
class DistancePattern(nnx.Module):
    """Mix tokens by a pattern of their distance alone: `Σ_h H_h x W_{V,h} W_{O,h}`, `H_h = softmax(S_{h,q−k})`.

    The scores `S` are learned once and for all, and no input changes the pattern: a convolution as long as the text.

    Args:
        tokens: length of the longest text.
        features: width of the residual stream.
        heads: number of heads.
        rngs: source of the random initial weights; zeros without it.
    """

    def __init__(self, tokens: int, features: int, heads: int, *, rngs: nnx.Rngs | None) -> None:
        self.scores = initial((heads, tokens), jnp.float32, rngs)
        self.value = Linear(features, features, "attention.value", rngs=rngs)
        self.output = Linear(features, features, "attention.output", rngs=rngs)

    def pattern(self, tokens: int) -> Float[Array, "heads queries keys"]:
        """Return the pattern of a text."""
        places = jnp.arange(tokens)
        distances = places[:, None] - places
        scores = self.scores[...][:, jnp.maximum(distances, 0)]
        return jax.nn.softmax(jnp.where(distances >= 0, scores, -jnp.inf))

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: None = None
    ) -> Float[Array, "... tokens features"]:
        """Mix the tokens."""
        values = self.value(x).reshape(*x.shape[:-1], len(self.scores[...]), -1)
        mixed = jnp.einsum("hqk,...khd->...qhd", alike(self.pattern(x.shape[-2]), x), values, precision=PRECISION)
        return self.output(mixed.reshape(x.shape))


@final
class GroupedAttention(nnx.Module):
    """Attend within groups of neighbouring tokens, those of half of the heads shifted by half a group if so wished.

    The shifted groups are LongLoRA's, causal, with one difference: the tokens before the first shifted group are a
    group of their own, and aren't joined with the last tokens of the text.

    Args:
        attention: the attention with rotary positions whose weights are used.
        group: the number of tokens of a group.
        shifted: whether the second half of the heads has shifted groups.

    Source: Chen et al., "LongLoRA", 2023, Section 3.2.
    """

    def __init__(self, attention: Attention, group: int, *, shifted: bool) -> None:
        self.attention = attention
        self.group = group
        self.shifted = shifted

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: None = None
    ) -> Float[Array, "... tokens features"]:
        """Mix the tokens."""
        attention: Any = self.attention
        queries, keys, values = (
            part(x).reshape(*x.shape[:-1], attention.heads, -1)
            for part in (attention.query, attention.key, attention.value)
        )
        rotated = attention.rotary(queries), attention.rotary(keys), values
        half = attention.heads // 2
        halves = ((slice(half), 0), (slice(half, None), self.group // 2)) if self.shifted else ((slice(None), 0),)
        mixed = [self._mix(*(part[..., heads, :] for part in rotated), ahead=ahead) for heads, ahead in halves]
        return attention.output(jnp.concatenate(mixed, -2).reshape(x.shape))

    def _mix(self, queries: Array, keys: Array, values: Array, *, ahead: int) -> Array:
        """Mix values within groups, the first of which begins some places ahead of the first token."""
        tokens, behind = queries.shape[-3], -(queries.shape[-3] + ahead) % self.group

        def grouped(part: Array) -> Array:
            filled = jnp.pad(part, [(0, 0)] * (part.ndim - 3) + [(ahead, behind), (0, 0), (0, 0)])
            return filled.reshape(*part.shape[:-3], -1, self.group, *part.shape[-2:])

        real = jnp.pad(jnp.ones(tokens, bool), (ahead, behind)).reshape(-1, self.group)
        visible = attention_mask(self.group, causal=True, mask=real)
        pattern = attention_pattern(grouped(queries), grouped(keys), self.attention.scale, visible)
        mixed = jnp.einsum("...hqk,...khd->...qhd", pattern, grouped(values), precision=PRECISION)
        return mixed.reshape(*values.shape[:-3], -1, *values.shape[-2:])[..., ahead : ahead + tokens, :, :]


@final
class Nothing(nnx.Module):
    """Write nothing in the place of attention, so that no token sees another one."""

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: None = None
    ) -> Float[Array, "... tokens features"]:
        """Return zeros."""
        return jnp.zeros_like(x)
