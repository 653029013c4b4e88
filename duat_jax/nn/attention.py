"""Multi-head attention, linear in its value path once the pattern is held."""

from typing import Any, final

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from duat_jax.nn.blockwise import attend, pattern
from duat_jax.nn.linear import PRECISION, Linear, alike, initial
from duat_jax.nn.norm import RMSNorm
from duat_jax.nn.pattern import attention_mask, attention_pattern
from duat_jax.nn.position import Rotary
from duat_jax.transform.marks import point

LONGEST_STORED = 512
"""The longest text, in tokens, whose pattern is stored; for longer ones queries and keys are held instead."""


def _mix(
    pattern: Float[Array, "... heads queries keys"], values: Float[Array, "... keys heads head_features"]
) -> Float[Array, "... queries heads head_features"]:
    return jnp.einsum("...hqk,...khd->...qhd", pattern, values, precision=PRECISION)


def _concatenated(mixed: Float[Array, "... tokens heads head_features"]) -> Float[Array, "... tokens width"]:
    """Concatenate the heads' outputs, marked for differences and edits by head."""
    return point(mixed, "attention.mixed").reshape(*mixed.shape[:-2], -1)


@final
class Attention(nnx.Module):
    """Standard multi-head attention: `MHA(x) = Σ_h H_h x W_{V,h} W_{O,h} + bias`, scores scaled by `1/√head_features`.

    With fewer key/value heads than query heads, neighbouring query heads share one. The pattern is held; in texts of
    more than 512 tokens queries and keys are held instead, and `pattern` computes it from them.

    Args:
        features: width of the residual stream.
        heads: number of query heads.
        key_value_heads: number of key/value heads, a divisor of `heads`; as many if absent.
        head_features: width of one head; `features / heads` if absent.
        causal: whether a token sees only itself and earlier tokens.
        window: number of tokens that a token sees back, itself included, and without `causal` also ahead; all if
            absent.
        scale: factor of the scores; `1/√head_features` if absent.
        rotary: the rotation of queries and keys by their position; none if absent.
        query_norm: normalises the queries before rotation: each head's, or all heads' together.
        key_norm: the same for the keys.
        cap: the soft cap of the scores; no limit if absent.
        sinks: whether each head may attend to nothing, by a learned score.
        bias: whether queries, keys and values have biases.
        output_bias: whether the output has a bias.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; `None` gives zeros.

    Attributes:
        shards: the number of devices that the heads are divided among, 1 unless `duat_jax.models.mesh` says so.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        *,
        key_value_heads: int | None = None,
        head_features: int | None = None,
        causal: bool = True,
        window: int | None = None,
        scale: float | None = None,
        rotary: Rotary | None = None,
        query_norm: RMSNorm | None = None,
        key_norm: RMSNorm | None = None,
        cap: float | None = None,
        sinks: bool = False,
        bias: bool = True,
        output_bias: bool = True,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs | None,
    ) -> None:
        self.shards = 1
        self.heads = heads
        self.key_value_heads = heads if key_value_heads is None else key_value_heads
        self.head_features = features // heads if head_features is None else head_features
        self.causal = causal
        self.window = window
        self.scale = self.head_features**-0.5 if scale is None else scale
        self.rotary = rotary
        self.query_norm = query_norm
        self.key_norm = key_norm
        self.cap = cap
        width, shared = heads * self.head_features, self.key_value_heads * self.head_features
        self.query = Linear(features, width, "attention.query", bias=bias, dtype=dtype, rngs=rngs)
        self.key = Linear(features, shared, "attention.key", bias=bias, dtype=dtype, rngs=rngs)
        self.value = Linear(features, shared, "attention.value", bias=bias, dtype=dtype, rngs=rngs)
        self.output = Linear(width, features, "attention.output", bias=output_bias, dtype=dtype, rngs=rngs)
        self.sinks = initial((heads,), dtype, rngs) if sinks else None

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Mix the tokens by attention.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            mask: true for real tokens, `[..., tokens]`.
        """
        queries = point(self._heads(self.query(x), self.query_norm, mask), "attention.queries")
        keys = point(self._heads(self.key(x), self.key_norm, mask), "attention.keys")
        values = point(self.value(x).reshape(*x.shape[:-1], -1, self.head_features), "attention.values")
        if x.shape[-2] > LONGEST_STORED:
            mixed = attend(queries, keys, values, mask=mask, shards=self.shards, **self._switches(queries))
            return self.output(_concatenated(mixed))
        if self.key_value_heads != self.heads:
            keys, values = (jnp.repeat(part, self.heads // self.key_value_heads, axis=-2) for part in (keys, values))
        visible = attention_mask(x.shape[-2], causal=self.causal, window=self.window, mask=mask)
        sinks = self._switches(queries)["sinks"]
        return self.output(
            _concatenated(_mix(attention_pattern(queries, keys, self.scale, visible, self.cap, sinks), values))
        )

    def pattern(
        self,
        queries: Float[Array, "... tokens heads head_features"],
        keys: Float[Array, "... tokens key_value_heads head_features"],
        mask: Bool[Array, "... tokens"] | None = None,
    ) -> Float[Array, "... heads queries keys"]:
        """Return the attention pattern of a long text, from its held queries and keys.

        Args:
            queries: the held `"attention.queries"`, `[..., tokens, heads, head_features]`.
            keys: the held `"attention.keys"`, `[..., tokens, key_value_heads, head_features]`.
            mask: true for real tokens, `[..., tokens]`.
        """
        return pattern(queries, keys, mask=mask, **self._switches(queries))

    def _switches(self, queries: Array) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "causal": self.causal,
            "window": self.window,
            "cap": self.cap,
            "sinks": None if self.sinks is None else alike(self.sinks[...], queries),
        }

    def _heads(
        self,
        y: Float[Array, "... tokens width"],
        norm: RMSNorm | None,
        mask: Bool[Array, "... tokens"] | None,
    ) -> Float[Array, "... tokens heads head_features"]:
        """Split queries or keys into heads, normalised and rotated."""
        heads = y.reshape(*y.shape[:-1], -1, self.head_features)
        if norm is not None:
            heads = norm(heads) if norm.scale.shape == heads.shape[-1:] else norm(y).reshape(heads.shape)
        return heads if self.rotary is None else self.rotary(heads, mask)


@final
class SlicedAttention(nnx.Module):
    """The papers' attention: each head sees a slice `x_h = x S_h` of the features; scores are scaled by `1/√M`.

    `MHA(x) = Concat_h(H_h x_h W_{V,h}) W_O` with `M/h × M/h` projections and no biases (Wang & Li, Eq. 7 and 8).

    Args:
        features: width `M` of the residual stream.
        heads: number of heads `h`; it divides `features`.
        causal: whether a token sees only itself and earlier tokens.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; `None` gives zeros.
    """

    def __init__(
        self, features: int, heads: int, *, causal: bool = True, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs | None
    ) -> None:
        size = features // heads
        self.heads = heads
        self.causal = causal
        self.query, self.key, self.value = (initial((heads, size, size), dtype, rngs) for _ in range(3))
        self.output = Linear(features, features, "attention.output", bias=False, dtype=dtype, rngs=rngs)

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Mix the tokens by attention.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            mask: true for real tokens, `[..., tokens]`.
        """
        features = x.shape[-1]
        slices = x.reshape(*x.shape[:-1], self.heads, features // self.heads)

        def project(kernel: nnx.Param) -> Array:
            return jnp.einsum("...thd,hde->...the", slices, alike(kernel[...], x), precision=PRECISION)

        visible = attention_mask(x.shape[-2], causal=self.causal, mask=mask)
        pattern = attention_pattern(project(self.query), project(self.key), features**-0.5, visible)
        return self.output(_concatenated(_mix(pattern, point(project(self.value), "attention.values"))))
