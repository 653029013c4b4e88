"""Shares of what attention writes, by the distance of the token that it reads, in texts of any length."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.in_context.reach import Written, weigh
from duat_jax.models.sites import KEYS, QUERIES
from duat_jax.models.transformer import Transformer
from duat_jax.nn.block import Block
from duat_jax.nn.pattern import attention_pattern
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds

ROWS = 64
"""Positions of a text at which is measured what they read, evenly spaced over its later half."""
NORMS, SQUARES, ALONG = "norms", "squared norms", "along the sum"
MEASURES = NORMS, SQUARES, ALONG
"""The sums that a token's share is of: the norms of the vectors that attention writes to a position, their squares, or
the components along the vectors' sum, which are linear in the vectors and may be negative."""


def bins(distances: Int[np.ndarray, "*shape"], base: int = 4) -> Int[np.ndarray, "*shape"]:
    """Return the bin of every distance: 0 for none, and `i` for those from `base^(i−1)` to `base^i − 1`.

    Example:
        >>> bins(np.array([0, 1, 3, 4, 16, 8191])).tolist(), bins(np.array([0, 1, 2, 3, 4]), 2).tolist()
        ([0, 1, 1, 2, 3, 7], [0, 1, 2, 2, 3])
    """
    edges = base ** np.arange(int(20 / np.log2(base)) + 1)
    return np.searchsorted(edges, distances, side="right")


def label(number: int, base: int = 4, longest: int | None = None) -> str:
    """Return the distances of a bin, in words.

    Example:
        >>> label(1), label(6), label(1, 2), label(8, 2, longest=191)
        ('1 to 3', '1,024 to 4,095', '1', '128 to 191')
    """
    first, last = base ** (number - 1), base**number - 1
    last = last if longest is None else min(last, longest)
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


class Read(NamedTuple):
    """Means over the positions of a text's later half of what attention reads there.

    Args:
        shares: by measure, the share of the tokens of each bin of distances, `[layers, bins]`.
        rest: the same without the first token, so that it doesn't sum to one, `[layers, bins]`.
        tokens: tokens of equal shares with the same concentration, `1 / Σ share²`, of squared norms, `[layers]`.
        distance: the mean distance, weighted by the shares of squared norms, `[layers]`.
        distance_rest: the mean distance without the first token, `[layers]`.
        largest: the largest share of squared norms of a token other than the first and the position's own, `[layers]`.
    """

    shares: dict[str, Float[np.ndarray, "layers bins"]]
    rest: dict[str, Float[np.ndarray, "layers bins"]]
    tokens: Float[np.ndarray, "layers"]
    distance: Float[np.ndarray, "layers"]
    distance_rest: Float[np.ndarray, "layers"]
    largest: Float[np.ndarray, "layers"]


def read_by_distance(
    norms: Float[np.ndarray, "layers queries keys"],
    along: Float[np.ndarray, "layers queries keys"],
    places: Int[np.ndarray, "queries"],
) -> Read:
    """Return what some positions read, by distance."""
    distances = places[:, None] - np.arange(norms.shape[-1])
    of_bins = bins(np.maximum(distances, 0))
    squares = norms**2

    def sums(shares: np.ndarray, first: int) -> np.ndarray:
        counted = (of_bins == np.arange(of_bins.max() + 1)[:, None, None])[..., first:]
        return np.stack([(shares[..., first:] * of_bin).sum(-1).mean(-1) for of_bin in counted], -1)

    shares = {
        NORMS: norms / norms.sum(-1, keepdims=True),
        SQUARES: squares / squares.sum(-1, keepdims=True),
        ALONG: along,
    }
    of_squares = shares[SQUARES]
    rest = of_squares[..., 1:]
    return Read(
        shares={measure: sums(of, 0) for measure, of in shares.items()},
        rest={measure: sums(of, 1) for measure, of in shares.items()},
        tokens=(1 / (of_squares**2).sum(-1)).mean(-1),
        distance=(of_squares * distances).sum(-1).mean(-1),
        distance_rest=((rest * distances[:, 1:]).sum(-1) / rest.sum(-1)).mean(-1),
        largest=(rest * (distances[:, 1:] > 0)).max(-1).mean(-1),
    )


def late_places(tokens: int) -> Int[np.ndarray, "queries"]:
    """Return the positions of a text at which is measured what they read."""
    return np.linspace(tokens // 2, tokens - 1, min(ROWS, tokens // 2)).round().astype(int)


def equal_shares(tokens: int) -> Read:
    """Return what positions read that read every visible token alike."""
    places = late_places(tokens)
    visible = np.arange(tokens) <= places[:, None]
    shares = (visible / visible.sum(-1, keepdims=True))[None]
    return read_by_distance(shares, shares, places)


def measure_reading(model: Transformer, ids: Int[np.ndarray, "tokens"]) -> tuple[Read, Float[Array, "tokens features"]]:
    """Return what a model's attention reads, and the states from which logits are read."""
    # No pattern is stored but for a few positions, one layer at a time.
    places = late_places(len(ids))
    x = model.first(model.embed(jnp.asarray(ids)))
    layers = []
    for block in model.stack.blocks:
        after, queries, keys = _run(block, x)
        layers.append(_written(block, x, queries, keys, jnp.asarray(places)))
        x = after
    x = x if model.final_norm is None else model.final_norm(x)
    norms, along = (np.stack(of).astype(np.float64) for of in zip(*layers, strict=True))
    return read_by_distance(norms, along, places), model.head.states(x)


@jax.jit
def _run(block: Block, x: Array) -> tuple[Array, Array, Array]:
    recording = record_kinds(block, x, (marks.POINT,))
    seen = {site.key.name: recording.seen[site] for site in recording.program.of_kind(marks.POINT)}
    return recording.value, seen[QUERIES], seen[KEYS]


@jax.jit
def _written(block: Block, x: Array, queries: Array, keys: Array, places: Array) -> Written:
    attention: Any = block.attention
    keys = jnp.repeat(keys, attention.heads // attention.key_value_heads, axis=-2)
    visible = jnp.arange(len(x)) <= places[:, None]
    return weigh(block, attention_pattern(queries[places], keys, attention.scale, visible), x)
