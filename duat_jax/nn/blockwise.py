"""Blockwise attention without a stored pattern: each block is computed again in a transpose."""

from functools import partial
from itertools import pairwise
from math import ceil, lcm

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from duat_jax.nn.linear import PRECISION
from duat_jax.nn.pattern import masked, require_boolean
from duat_jax.transform.marks import hold

ROWS = 256
"""Rows of the pattern that are computed at once: for one key head, those of all query heads that share it."""

STRIPS = 4
"""Strips of a causal pattern, each with as many columns as its last row sees: 5/8 of the square are computed, not all.
More strips take longer to compile."""


def _mix(
    queries: Float[Array, "... queries group head_features"],
    keys: Float[Array, "... keys head_features"],
    values: Float[Array, "... value_features keys"],
    sinks: Float[Array, "group"] | None,
    visible: Bool[Array, "... queries 1 keys"],
    scale: float,
    cap: float | None,
) -> Float[Array, "... queries group value_features"]:
    scores = scale * jnp.einsum("...qgf,...kf->...qgk", queries, keys, precision=PRECISION)
    if cap is not None:
        scores = cap * jnp.tanh(scores / cap)
    scores = masked(scores, visible)
    if sinks is not None:
        scores = jnp.concatenate([scores, jnp.broadcast_to(sinks[:, None], (*scores.shape[:-1], 1))], -1)
    pattern = jax.nn.softmax(scores)[..., : visible.shape[-1]]
    # A query that sees no key gets zeros.
    return jnp.einsum("...qgk,...fk->...qgf", jnp.where(visible, pattern, 0), values, precision=PRECISION)


def _attend_head(
    operands: tuple[Array, Array, Array, Array | None],
    mask: Bool[Array, "... tokens"] | None,
    back: int,
    ahead: int,
    scale: float,
    cap: float | None,
) -> Float[Array, "... tokens group value_features"]:
    """Mix one key head's values for its query heads, each of which sees `back` tokens back and `ahead` ahead."""
    queries, keys, values, sinks = operands
    tokens, group = queries.shape[-3:-1]
    rows = ceil(tokens / ceil(tokens * group / ROWS))
    blocks = ceil(tokens / rows)

    filled = jnp.pad(queries, [(0, 0)] * (queries.ndim - 3) + [(0, blocks * rows - tokens), (0, 0), (0, 0)])
    blocked = jnp.moveaxis(filled.reshape(*queries.shape[:-3], blocks, rows, *queries.shape[-2:]), -4, 0)
    firsts = rows * jnp.arange(blocks)

    def attend_strip(begin: int, end: int) -> Array:
        columns = min(tokens, back + rows + ahead, end * rows if ahead == 0 else tokens)

        # Otherwise all blocks' patterns would be stored for the transpose.
        @jax.checkpoint
        def attend_block(block: tuple[Array, Array]) -> Array:
            first, queries = block
            first_column = jnp.clip(first - back, 0, tokens - columns)
            cut = partial(lax.dynamic_slice_in_dim, start_index=first_column, slice_size=columns)
            distances = first + jnp.arange(rows)[:, None, None] - (first_column + jnp.arange(columns))
            visible = (distances <= back) & (distances >= -ahead)
            if mask is not None:
                visible &= cut(mask, axis=-1)[..., None, None, :]
            return _mix(queries, cut(keys, axis=-2), cut(values, axis=-1), sinks, visible, scale, cap)

        return lax.map(attend_block, (firsts[begin:end], blocked[begin:end]))

    strips = min(STRIPS, blocks) if ahead == 0 and back >= tokens - 1 else 1
    edges = [blocks * strip // strips for strip in range(strips + 1)]
    mixed = jnp.concatenate([attend_strip(begin, end) for begin, end in pairwise(edges)])
    joined = jnp.moveaxis(mixed, 0, -4)
    return joined.reshape(*queries.shape[:-3], blocks * rows, group, -1)[..., :tokens, :, :]


def attend(
    queries: Float[Array, "... tokens heads head_features"],
    keys: Float[Array, "... tokens key_value_heads head_features"],
    values: Float[Array, "... tokens key_value_heads width"],
    *,
    scale: float,
    causal: bool,
    window: int | None,
    mask: Bool[Array, "... tokens"] | None = None,
    cap: float | None = None,
    sinks: Float[Array, "heads"] | None = None,
    shards: int = 1,
) -> Float[Array, "... tokens heads width"]:
    """Return `softmax(scale · Q_h K_hᵀ) V_h` with queries and keys held, and no pattern stored.

    The pattern is a function of queries and keys, so that it is held with them, and the result is linear in the values.
    Keys that no query of a block sees are skipped. Memory grows in proportion to tokens.

    Args:
        queries: `[..., tokens, heads, head_features]`.
        keys: `[..., tokens, key_value_heads, head_features]`; neighbouring query heads share one.
        values: `[..., tokens, key_value_heads, width]`.
        scale: factor of the scores.
        causal: whether a query sees only itself and earlier tokens.
        window: number of tokens that a query sees back, itself included, and without `causal` also ahead; all if
            absent.
        mask: true for real tokens, false for padding, `[..., tokens]`. A query that sees no real token gets zeros.
        cap: the soft cap of the scores; no limit if absent.
        sinks: the score of one more key, without a value, `[heads]`.
        shards: the number of devices that the heads are divided among, a divisor of it; each loops over its own.

    Returns:
        `[..., tokens, heads, width]`.

    Raises:
        DuatError: if the mask isn't boolean.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.arange(3.0)[:, None, None]
        >>> attend(0 * x, x, x, scale=1.0, causal=True, window=None)[:, 0, 0].tolist()
        [0.0, 0.5, 1.0]

    Source: Rabe & Staats, "Self-attention Does Not Need O(n²) Memory", 2021; the held pattern is Wang & Li, Eq. 35.
    """
    if mask is not None:
        require_boolean(mask)
    queries, keys = hold(queries, "attention.queries"), hold(keys, "attention.keys")
    tokens, heads, head_features = queries.shape[-3:]
    shared = lcm(keys.shape[-2], shards)
    if shared != keys.shape[-2]:  # each device has its own copy of a key head
        keys, values = (jnp.repeat(part, shared // part.shape[-2], axis=-2) for part in (keys, values))
    grouped = queries.reshape(*queries.shape[:-2], shared, heads // shared, head_features)
    back = tokens if window is None else window - 1
    of_head = partial(_attend_head, mask=mask, back=back, ahead=0 if causal else back, scale=scale, cap=cap)
    operands = (
        jnp.moveaxis(grouped, -3, 0),
        jnp.moveaxis(keys, -2, 0),
        # With features before tokens, compilers for CPUs multiply fast in both directions.
        jnp.moveaxis(values, (-2, -3), (0, -1)),
        None if sinks is None else sinks.reshape(shared, -1),
    )
    over_heads = partial(lax.map, of_head)
    if shards == 1:
        mixed = over_heads(operands)
    else:  # a loop over an axis that is divided would gather it
        divided = jax.tree.map(lambda part: part.reshape(shards, -1, *part.shape[1:]), operands)
        mixed = jax.vmap(over_heads)(divided).reshape(shared, *queries.shape[:-2], heads // shared, -1)
    mixed = jnp.moveaxis(mixed, 0, -3)
    return mixed.reshape(*mixed.shape[:-3], heads, -1)


def pattern(
    queries: Float[Array, "... tokens heads head_features"],
    keys: Float[Array, "... tokens key_value_heads head_features"],
    *,
    scale: float,
    causal: bool,
    window: int | None,
    mask: Bool[Array, "... tokens"] | None = None,
    cap: float | None = None,
    sinks: Float[Array, "heads"] | None = None,
) -> Float[Array, "... heads queries keys"]:
    """Return the pattern that `attend` applies, by applying it to the identity.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.zeros((2, 1, 1))
        >>> pattern(x, x, scale=1.0, causal=True, window=None).tolist()
        [[[1.0, 0.0], [0.5, 0.5]]]
    """
    tokens = keys.shape[-3]
    identity = jnp.broadcast_to(jnp.eye(tokens, dtype=keys.dtype)[:, None], (*keys.shape[:-1], tokens))
    rows = attend(queries, keys, identity, scale=scale, causal=causal, window=window, mask=mask, cap=cap, sinks=sinks)
    return jnp.moveaxis(rows, -2, -3)
