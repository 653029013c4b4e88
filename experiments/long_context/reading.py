"""How far back attention reads: shares of the norms that it writes, by distance, in texts of any length."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.in_context.reach import weigh
from duat_jax.models.sites import KEYS, QUERIES
from duat_jax.models.transformer import Transformer
from duat_jax.nn.block import Block
from duat_jax.nn.pattern import attention_pattern
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds

ROWS = 64
"""Positions of a text at which is measured what they read, evenly spaced over its later half."""


def bins(distances: Int[np.ndarray, "*shape"], base: int = 4) -> Int[np.ndarray, "*shape"]:
    """Return the bin of every distance: 0 for none, and `i` for those from `base^(i−1)` to `base^i − 1`.

    Args:
        distances: in tokens, at most a million.
        base: how many times larger than the one before a bin is.

    Example:
        >>> bins(np.array([0, 1, 3, 4, 16, 8191])).tolist(), bins(np.array([0, 1, 2, 3, 4]), 2).tolist()
        ([0, 1, 1, 2, 3, 7], [0, 1, 2, 2, 3])
    """
    edges = base ** np.arange(int(20 / np.log2(base)) + 1)
    return np.searchsorted(edges, distances, side="right")


def label(number: int, base: int = 4) -> str:
    """Return the distances of a bin, in words.

    Args:
        number: of the bin, as in `bins`.
        base: as in `bins`.

    Example:
        >>> label(1), label(6), label(1, 2)
        ('1 to 3', '1,024 to 4,095', '1')
    """
    first, last = base ** (number - 1), base**number - 1
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


class Read(NamedTuple):
    """What the positions of a text's later half read, as means over them.

    Args:
        shares: the share of the tokens of each bin of distances in a position's squared norms, `[layers, bins]`.
        rest: the same without the first token, so that it sums to less than one, `[layers, bins]`.
        tokens: tokens of equal shares with the same concentration, `1 / Σ share²`, `[layers]`.
        distance: the mean distance, weighted by the shares, `[layers]`.
    """

    shares: Float[np.ndarray, "layers bins"]
    rest: Float[np.ndarray, "layers bins"]
    tokens: Float[np.ndarray, "layers"]
    distance: Float[np.ndarray, "layers"]


def read_by_distance(shares: Float[np.ndarray, "layers queries keys"], places: Int[np.ndarray, "queries"]) -> Read:
    """Return what some positions read, by distance.

    Args:
        shares: each token's share of the position's squared norms.
        places: the positions.
    """
    distances = places[:, None] - np.arange(shares.shape[-1])
    of_bins = bins(np.maximum(distances, 0))

    def sums(shares: np.ndarray) -> np.ndarray:
        return np.stack([(shares * (of_bins == i)).sum(-1).mean(-1) for i in range(of_bins.max() + 1)], -1)

    rest = shares.copy()
    rest[..., 0] = 0
    tokens = 1 / (shares**2).sum(-1)
    return Read(sums(shares), sums(rest), tokens.mean(-1), (shares * distances).sum(-1).mean(-1))


def late_places(tokens: int) -> Int[np.ndarray, "queries"]:
    """Return the positions of a text at which is measured what they read.

    Args:
        tokens: the text's length.
    """
    return np.linspace(tokens // 2, tokens - 1, min(ROWS, tokens // 2)).round().astype(int)


def equal_shares(tokens: int) -> Read:
    """Return what positions read that read every visible token alike.

    Args:
        tokens: the text's length.
    """
    places = late_places(tokens)
    visible = np.arange(tokens) <= places[:, None]
    return read_by_distance((visible / visible.sum(-1, keepdims=True))[None], places)


def measure_reading(model: Transformer, ids: Int[np.ndarray, "tokens"]) -> tuple[Read, Float[Array, "tokens features"]]:
    """Return what a model's attention reads, and the states from which logits are read.

    No pattern is stored but for a few positions, one layer at a time.

    Args:
        model: a language model with standard attention.
        ids: the text.
    """
    places = late_places(len(ids))
    x = model.first(model.embed(jnp.asarray(ids)))
    layers = []
    for block in model.stack.blocks:
        after, queries, keys = _run(block, x)
        squares = np.asarray(_norms(block, x, queries, keys, jnp.asarray(places)), np.float64) ** 2
        layers.append(squares / squares.sum(-1, keepdims=True))
        x = after
    x = x if model.final_norm is None else model.final_norm(x)
    return read_by_distance(np.stack(layers), places), model.head.states(x)


@jax.jit
def _run(block: Block, x: Array) -> tuple[Array, Array, Array]:
    recording = record_kinds(block, x, (marks.POINT,))
    seen = {site.key.name: recording.seen[site] for site in recording.program.of_kind(marks.POINT)}
    return recording.value, seen[QUERIES], seen[KEYS]


@jax.jit
def _norms(block: Block, x: Array, queries: Array, keys: Array, places: Array) -> Float[Array, "queries keys"]:
    attention: Any = block.attention
    keys = jnp.repeat(keys, attention.heads // attention.key_value_heads, axis=-2)
    visible = jnp.arange(len(x)) <= places[:, None]
    return weigh(block, attention_pattern(queries[places], keys, attention.scale, visible), x).norms
