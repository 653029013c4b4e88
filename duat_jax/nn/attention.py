"""Attention, linear in its value path once the pattern is held."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from duat_jax.marks import hold
from duat_jax.nn.linear import INITIAL_SCALE, PRECISION, Linear


def attention_mask(
    tokens: int, *, causal: bool, padding: Bool[Array, "... tokens"] | None = None
) -> Bool[Array, "... #queries keys"] | None:
    """Return which keys each query may see, or `None` where it may see all.

    Args:
        tokens: length of the sequence.
        causal: whether a query sees only itself and what came before.
        padding: true for real tokens, false for padding, `[..., tokens]`.

    Returns:
        A mask that broadcasts against `[..., queries, keys]`.

    Example:
        >>> attention_mask(2, causal=True).tolist()
        [[True, False], [True, True]]
    """
    mask = jnp.tril(jnp.ones((tokens, tokens), bool)) if causal else None
    if padding is None:
        return mask
    keys = padding[..., None, :]
    return keys if mask is None else mask & keys


def attention_pattern(
    queries: Float[Array, "... tokens heads head_features"],
    keys: Float[Array, "... tokens heads head_features"],
    scale: float,
    mask: Bool[Array, "... #queries keys"] | None,
) -> Float[Array, "... heads queries keys"]:
    """Return the held attention pattern `H_h = softmax(scale · Q_h K_hᵀ)`, whose rows sum to one (Wang & Li, Eq. 35).

    Args:
        queries: `[..., tokens, heads, head_features]`.
        keys: `[..., tokens, heads, head_features]`.
        scale: factor of the scores.
        mask: which keys each query may see.

    Returns:
        `[..., heads, queries, keys]`, marked with `hold`.
    """
    scores = scale * jnp.einsum("...qhd,...khd->...hqk", queries, keys, precision=PRECISION)
    if mask is not None:
        scores = jnp.where(mask[..., None, :, :], scores, jnp.finfo(scores.dtype).min)
    return hold(jax.nn.softmax(scores), "attention.pattern")


def _mix(pattern: Array, values: Array) -> Array:
    return jnp.einsum("...hqk,...khd->...qhd", pattern, values, precision=PRECISION)


class Attention(nnx.Module):
    """Standard multi-head attention: `MHA(x) = Σ_h H_h x W_{V,h} W_{O,h} + bias`, scores scaled by `1/√head_features`.

    Args:
        features: width of the residual stream.
        heads: number of heads; it divides `features`.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights.
    """

    def __init__(self, features: int, heads: int, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs) -> None:
        self.heads = heads
        self.query = Linear(features, features, "attention.query", dtype=dtype, rngs=rngs)
        self.key = Linear(features, features, "attention.key", dtype=dtype, rngs=rngs)
        self.value = Linear(features, features, "attention.value", dtype=dtype, rngs=rngs)
        self.output = Linear(features, features, "attention.output", dtype=dtype, rngs=rngs)

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... #queries keys"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Mix the tokens.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            mask: which keys each query may see, `[..., queries, keys]`.
        """
        split = (*x.shape[:-1], self.heads, x.shape[-1] // self.heads)
        queries, keys, values = (part(x).reshape(split) for part in (self.query, self.key, self.value))
        pattern = attention_pattern(queries, keys, split[-1] ** -0.5, mask)
        return self.output(_mix(pattern, values).reshape(x.shape))


class SlicedAttention(nnx.Module):
    """The papers' attention: each head sees a slice `x_h = x S_h` of the features; scores are scaled by `1/√M`.

    `MHA(x) = Concat_h(H_h x_h W_{V,h}) W_O` with `M/h × M/h` projections and no biases (Wang & Li, Eq. 7 and 8).

    Args:
        features: width `M` of the residual stream.
        heads: number of heads `h`; it divides `features`.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights.
    """

    def __init__(self, features: int, heads: int, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs) -> None:
        size = features // heads

        def kernel() -> nnx.Param:
            return nnx.Param(INITIAL_SCALE * jax.random.normal(rngs.params(), (heads, size, size), dtype))

        self.heads = heads
        self.query, self.key, self.value = kernel(), kernel(), kernel()
        self.output = Linear(features, features, "attention.output", bias=False, dtype=dtype, rngs=rngs)

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... #queries keys"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Mix the tokens.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            mask: which keys each query may see, `[..., queries, keys]`.
        """
        features = x.shape[-1]
        slices = x.reshape(*x.shape[:-1], self.heads, features // self.heads)

        def project(kernel: nnx.Param) -> Array:
            return jnp.einsum("...thd,hde->...the", slices, kernel[...], precision=PRECISION)

        pattern = attention_pattern(project(self.query), project(self.key), features**-0.5, mask)
        return self.output(_mix(pattern, project(self.value)).reshape(x.shape))
