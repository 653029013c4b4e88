"""Attention without a stored pattern: block by block, and computed again where a transpose needs it."""

from functools import partial, reduce
from itertools import pairwise
from math import ceil

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from duat_jax.nn.linear import PRECISION
from duat_jax.transform.marks import hold

ROWS = 256
"""Rows of the pattern that are computed at once: those of all query heads that share a key head."""

STRIPS = 4
"""Each quarter of a causal pattern has its own number of columns: three eighths of the square are never computed."""


def _mix(
    queries: Float[Array, "... queries group head_features"],
    keys: Float[Array, "... keys head_features"],
    values: Float[Array, "... head_features keys"],
    visible: Bool[Array, "... queries #group keys"],
    scale: float,
    cap: float | None,
    sinks: Float[Array, "group"] | None,
) -> Float[Array, "... queries group head_features"]:
    scores = scale * jnp.einsum("...qgd,...kd->...qgk", queries, keys, precision=PRECISION)
    if cap is not None:
        scores = cap * jnp.tanh(scores / cap)
    scores = jnp.where(visible, scores, -jnp.inf)
    # A query that sees nothing mixes in nothing.
    largest = jnp.maximum(scores.max(-1, keepdims=True), jnp.finfo(scores.dtype).min)
    if sinks is not None:
        largest = jnp.maximum(largest, sinks[:, None])
    largest = lax.stop_gradient(largest)
    weights = jnp.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total += jnp.exp(sinks[:, None] - largest)
    # The rows are divided by their sums after the product, where they are shorter.
    mixed = jnp.einsum("...qgk,...dk->...qgd", weights, values, precision=PRECISION)
    return mixed / jnp.where(total == 0, 1, total)


def attend(
    queries: Float[Array, "... tokens heads head_features"],
    keys: Float[Array, "... tokens key_value_heads head_features"],
    values: Float[Array, "... tokens key_value_heads head_features"],
    *,
    scale: float,
    causal: bool,
    window: int | None,
    padding: Bool[Array, "... tokens"] | None = None,
    cap: float | None = None,
    sinks: Float[Array, "heads"] | None = None,
) -> Float[Array, "... tokens heads head_features"]:
    """Return `softmax(scale · Q_h K_hᵀ) V_h`, with queries and keys held instead of the pattern.

    Held, they make the pattern a constant of this input, so that the result is linear in the values; and each block of
    the pattern is computed again where the transpose needs it, so that memory grows in proportion to tokens.  Neighbouring
    query heads share a key and value head.  Keys that no query of a block sees aren't computed.

    Args:
        queries: `[..., tokens, heads, head_features]`.
        keys: `[..., tokens, key_value_heads, head_features]`.
        values: `[..., tokens, key_value_heads, head_features]`.
        scale: factor of the scores.
        causal: whether a query sees only itself and what came before.
        window: how many tokens a query sees back, itself included, and without `causal` as many ahead; all if absent.
        padding: true for real tokens, `[..., tokens]`; all are if absent.
        cap: what the scores' size stays below; no limit if absent.
        sinks: the score of one more key for every head, which mixes in nothing, `[heads]`.

    Returns:
        `[..., tokens, heads, head_features]`.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.arange(2.0).reshape(2, 1, 1)
        >>> attend(0 * x, x, x, scale=1.0, causal=True, window=None)[:, 0, 0].tolist()
        [0.0, 0.5]

    Source: Dao et al., "FlashAttention", 2022, Section 3 (recomputation), for a pattern that is held.
    """
    queries, keys = hold(queries, "attention.queries"), hold(keys, "attention.keys")
    tokens, heads, head_features = queries.shape[-3:]
    shared = keys.shape[-2]
    group = heads // shared
    blocks = ceil(tokens * group / ROWS)
    rows = ceil(tokens / blocks)
    blocks = ceil(tokens / rows)

    def blocked(x: Array) -> Array:
        filled = jnp.pad(x, [(0, 0)] * (x.ndim - 3) + [(0, blocks * rows - tokens), (0, 0), (0, 0)])
        split = filled.reshape(*x.shape[:-3], blocks, rows, shared, group, head_features)
        return jnp.moveaxis(split, (-3, -5), (0, 1))

    def joined(x: Array) -> Array:
        split = jnp.moveaxis(x, (0, 1), (-3, -5))
        return split.reshape(*queries.shape[:-3], blocks * rows, heads, head_features)[..., :tokens, :, :]

    def of_head(operands: tuple) -> Array:
        queries, keys, values, sinks = operands
        firsts = rows * jnp.arange(blocks)

        def of_strip(begin: int, end: int) -> Array:
            columns = min(tokens, end * rows)
            back = tokens
            if window is not None:
                back = window - 1
                columns = min(tokens, rows + back * (1 if causal else 2))
            elif not causal:
                columns = tokens

            @jax.checkpoint
            def of_block(queries: Array, first: Array, keys: Array, values: Array) -> Array:
                left = jnp.clip(first - back, 0, tokens - columns)
                seen = partial(lax.dynamic_slice_in_dim, start_index=left, slice_size=columns)
                distances = first + jnp.arange(rows)[:, None, None] - (left + jnp.arange(columns))
                masks = []
                if causal:
                    masks.append(distances >= 0)
                if window is not None:
                    masks.append(abs(distances) < window)
                if padding is not None:
                    masks.append(seen(padding, axis=-1)[..., None, None, :])
                visible = reduce(jnp.logical_and, masks, jnp.array(True))
                return _mix(queries, seen(keys, axis=-2), seen(values, axis=-1), visible, scale, cap, sinks)

            return lax.map(lambda x: of_block(*x, keys, values), (queries[begin:end], firsts[begin:end]))

        edges = [blocks * strip // strips for strip in range(strips + 1)]
        return jnp.concatenate([of_strip(begin, end) for begin, end in pairwise(edges)])

    strips = min(blocks, STRIPS) if causal and window is None else 1
    return joined(
        lax.map(
            of_head,
            (
                blocked(queries),
                jnp.moveaxis(keys, -2, 0),
                jnp.moveaxis(values, (-2, -3), (0, -1)),
                None if sinks is None else sinks.reshape(shared, group),
            ),
        )
    )
