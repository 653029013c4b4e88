"""Attention masks, soft caps and the held attention pattern."""

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from duat_jax.errors import DuatError
from duat_jax.nn.linear import PRECISION
from duat_jax.transform.marks import hold


def require_boolean(mask: Any) -> None:
    """Raise unless a mask is boolean."""
    if mask.dtype != bool:
        raise DuatError(
            f"the mask has dtype {mask.dtype}, but it has to say for each token whether it is real: give"
            " a boolean array, True for a real token and False for padding"
        )


def attention_mask(
    tokens: int, *, causal: bool, window: int | None = None, mask: Bool[Array, "... tokens"] | None = None
) -> Bool[Array, "... #queries keys"] | None:
    """Return the keys that each query may see, or `None` if it sees all.

    Args:
        tokens: length of the sequence.
        causal: whether a query sees only itself and earlier tokens.
        window: number of tokens that a query sees back, itself included, and without `causal` also ahead; all if
            absent.
        mask: true for real tokens, false for padding, `[..., tokens]`.

    Returns:
        A mask that broadcasts against `[..., queries, keys]`.

    Raises:
        DuatError: if the mask isn't boolean.

    Example:
        >>> attention_mask(2, causal=True).tolist()
        [[True, False], [True, True]]
    """
    masks: list[Array] = []
    if causal:
        masks.append(jnp.tril(jnp.ones((tokens, tokens), bool)))
    if window is not None:
        places = jnp.arange(tokens)
        masks.append(jnp.abs(places[:, None] - places) < window)
    if mask is not None:
        require_boolean(mask)
        masks.append(mask[..., None, :])
    return reduce(jnp.logical_and, masks) if masks else None


def sees(query: int, key: int, *, causal: bool, window: int | None = None) -> bool:
    """Return whether a query may see a key, as `attention_mask` says of all.

    Args:
        query: the index of its token.
        key: the index of its token.
        causal: whether a query sees only itself and earlier tokens.
        window: number of tokens that a query sees back, itself included, and without `causal` also ahead; all if
            absent.

    Example:
        >>> sees(0, 1, causal=True), sees(4, 2, causal=True, window=3)
        (False, True)
    """
    return (key <= query or not causal) and (window is None or abs(query - key) < window)


def soft_cap(scores: Float[Array, "..."], cap: float, name: str) -> Float[Array, "..."]:
    """Return `cap · tanh(scores / cap)` as the scores times a held ratio, so that it is linear in them.

    Args:
        scores: scores or logits, `[...]`.
        cap: the limit of their absolute value.
        name: prefix of the ratio's name.

    Returns:
        The capped scores, `[...]`.

    Example:
        >>> import jax.numpy as jnp
        >>> soft_cap(jnp.array([0.0, 1.0, 1000.0]), 30.0, "attention").tolist()
        [0.0, 0.99962..., 30.0]

    Source: Gemma Team, "Gemma 2", 2024, Section 2.
    """
    return scores * hold(cap_ratio(scores, cap), f"{name}.soft_cap")


def cap_ratio(scores: Float[Array, "..."], cap: float) -> Float[Array, "..."]:
    """Return `cap · tanh(scores / cap) / scores`, with one at zero."""
    at_zero = scores == 0
    return jnp.where(at_zero, 1, cap * jnp.tanh(scores / cap) / jnp.where(at_zero, 1, scores))


def masked(scores: Float[Array, "..."], visible: Bool[Array, "..."]) -> Float[Array, "..."]:
    """Return scores with `−∞` where a query doesn't see a key, and the lowest finite number where it sees none.

    Args:
        scores: `[..., keys]`.
        visible: the keys that each query sees; it broadcasts against them.

    Returns:
        The masked scores, `[..., keys]`: a query with any visible key has no weight on the others, or NaN if all that
        it sees overflow.

    Example:
        >>> masked(jnp.zeros((2, 2)), jnp.array([[True, False], [False, False]])).tolist()
        [[0.0, -inf], [-3.40282...e+38, -3.40282...e+38]]
    """
    # A finite number alone would be above scores that overflow to −∞, so that what is hidden would be read.
    hidden = jnp.where(visible.any(-1, keepdims=True), -jnp.inf, float(jnp.finfo(scores.dtype).min))
    return jnp.where(visible, scores, hidden.astype(scores.dtype))


def attention_pattern(
    queries: Float[Array, "... queries heads head_features"],
    keys: Float[Array, "... keys heads head_features"],
    scale: float,
    visible: Bool[Array, "... #queries keys"] | None,
    cap: float | None = None,
    sinks: Float[Array, "heads"] | None = None,
) -> Float[Array, "... heads queries keys"]:
    """Return the held attention pattern `H_h = softmax(scale · Q_h K_hᵀ)`, whose rows sum to one (Wang & Li, Eq. 35).

    Args:
        queries: `[..., queries, heads, head_features]`.
        keys: `[..., keys, heads, head_features]`.
        scale: factor of the scores.
        visible: the keys that each query may see; all if absent.
        cap: the soft cap of the scores, before the mask; no limit if absent.
        sinks: the score of one more key, without a value, `[heads]`: with it rows sum to less than one.

    Returns:
        `[..., heads, queries, keys]`, marked with `hold`.
    """
    scores = scale * jnp.einsum("...qhd,...khd->...hqk", queries, keys, precision=PRECISION)
    if cap is not None:
        scores = soft_cap(scores, cap, "attention")
    if visible is not None:
        scores = masked(scores, visible[..., None, :, :])
    if sinks is None:
        return hold(jax.nn.softmax(scores), "attention.pattern")
    silent = jnp.broadcast_to(sinks[:, None, None], (*scores.shape[:-1], 1))
    return hold(jax.nn.softmax(jnp.concatenate([scores, silent], -1))[..., :-1], "attention.pattern")
