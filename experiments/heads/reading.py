"""Measures of the directions that the heads of a layer read of the stream and write to it, and of the words in them.

A head is described by a factor `F`, so that `F Fᵀ` is what it reads or writes in the directions of the stream. What it
reads of a stream with covariance `Σ` by a matrix `W` has `F = R W`, in coordinates of principal components, with
`Rᵀ R = Σ`; what it writes by `W_O`, with `Rᵀ R` the covariance of what it mixes of the values, has `F = W_Oᵀ Rᵀ`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.evaluation.circuits import UNITS, values
from duat_jax.models.transformer import Transformer
from experiments.study import Row

READS = {"queries": "query", "keys": "key", "values": "value"}
"""Linear maps of a head by which it reads the stream, by the name of their results."""
WRITES = "writes"
HEADS, SPLITS, ROTATED, COMPONENTS = "heads", "random groups of columns", "heads, each rotated", "same components"
"""The heads, and what they are compared with: the columns of all heads in random groups of a head's width; each head's
matrix behind a random rotation of the stream; heads that read each principal component of the stream as much as they
do, but otherwise without relation to each other."""
STREAM, SLICES, TOGETHER = "the whole stream", "a slice of the features", "all heads"
DRAWS = 5
"""Random draws of each comparison."""


def root(covariance: Float[np.ndarray, "features features"]) -> Float[np.ndarray, "features features"]:
    """Return `R` with `Rᵀ R = Σ`, a principal component in each row, by the length of its standard deviation."""
    variances, components = np.linalg.eigh(covariance)
    return np.sqrt(np.maximum(variances, 0))[:, None] * components.T


def effective_rank(factor: Float[np.ndarray, "features width"]) -> float:
    """Return the participation ratio of the eigenvalues `λ` of `F Fᵀ`, `(Σ λ)² / Σ λ²`.

    Example:
        >>> effective_rank(np.diag([1.0, 1.0, 0.0]))
        2.0
    """
    return float((factor**2).sum() ** 2 / ((factor.T @ factor) ** 2).sum())


def overlap(factors: Float[np.ndarray, "heads features width"]) -> float:
    """Return the mean cosine between `F_a F_aᵀ` and `F_b F_bᵀ` over the pairs of heads.

    Example:
        >>> overlap(np.eye(4)[:, :, None])
        0.0
    """
    # It is 0 if no two heads have a direction in common, and 1 if all weigh all directions alike. Between the columns
    # that two heads make of the same stream it is their linear centred kernel alignment.
    products = np.einsum("aik,bil->abkl", factors, factors, optimize=True)
    cosines = _cosines((products**2).sum((2, 3)))
    return float(cosines[np.triu_indices(len(factors), 1)].mean())


def _cosines(products: np.ndarray) -> np.ndarray:
    lengths = np.sqrt(np.diag(products))
    return products / np.outer(lengths, lengths)


def unrelated_overlap(factors: Float[np.ndarray, "heads components width"]) -> float:
    """Return the overlap of heads of which each reads every principal component as much, but with a random sign."""
    # It is the expectation over signs, drawn for each head and component alone, without a draw.
    shares = (factors**2).sum(-1)
    lengths = np.sqrt([((factor.T @ factor) ** 2).sum() for factor in factors])
    cosines = (shares @ shares.T) / np.outer(lengths, lengths)
    return float(cosines[np.triu_indices(len(factors), 1)].mean())


def recovered(weights: Float[np.ndarray, "features width"], covariance: np.ndarray) -> float:
    """Return the share of the stream's variance that a linear map recovers from what a head reads of it."""
    with_stream = covariance @ weights
    inverse = np.linalg.pinv(weights.T @ with_stream, rcond=1e-10, hermitian=True)
    return float(((with_stream @ inverse) * with_stream).sum() / np.trace(covariance))


def rotated(
    draw: np.random.Generator, heads: Float[np.ndarray, "heads features width"]
) -> Float[np.ndarray, "heads features width"]:
    """Return the matrices of heads, each behind a random rotation of the stream."""
    # Where a rotation takes orthonormal columns: a uniformly random frame.
    frames, triangles = np.linalg.qr(draw.normal(size=heads.shape))
    frames = frames * np.sign(np.diagonal(triangles, axis1=1, axis2=2))[:, None]
    return frames @ np.linalg.qr(heads)[1]


def grouped(columns: Float[np.ndarray, "rows columns"], groups: int) -> Float[np.ndarray, "groups rows width"]:
    """Split the columns of a matrix into groups of neighbours, such as those of each head."""
    return np.moveaxis(columns.reshape(len(columns), groups, -1), 1, 0)


@jax.jit
def same_word(
    read: Float[Array, "tokens width"], words: Int[Array, "tokens"], windows: Int[Array, "tokens"]
) -> Float[Array, "tokens"]:
    """Return for each token whether the nearest one of all other windows is the same word."""
    squares = (read**2).sum(-1)
    distances = squares - 2 * jnp.matmul(read, read.T, precision=jax.lax.Precision.HIGHEST)
    nearest = jnp.where(windows[:, None] == windows, jnp.inf, distances).argmin(-1)
    return (words[nearest] == words).astype(read.dtype)


class Words:
    """Tokens of a text of which the same word can be found in another window.

    Args:
        ids: windows of text, without the tokens that are left out.
    """

    def __init__(self, ids: Int[np.ndarray, "windows tokens"]) -> None:
        self.words = ids.ravel()
        self.windows = np.repeat(np.arange(len(ids)), ids.shape[1])
        elsewhere = {word: len(set(self.windows[self.words == word])) > 1 for word in set(self.words.tolist())}
        self._kinds = [self.words == word for word, found in elsewhere.items() if found]

    def __len__(self) -> int:
        return len(self._kinds)

    def kept(self, read: Float[np.ndarray, "tokens width"]) -> float:
        """Return how often the nearest token of another window is the same word, every word counted alike."""
        found = np.asarray(same_word(*map(jnp.asarray, (read.astype(np.float32), self.words, self.windows))))
        return float(np.mean([found[kind].mean() for kind in self._kinds]))


def streams_and_mixed(model: Transformer, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the streams before each layer, and what each head mixes, `[layers, windows, tokens, ...]`."""
    kinds = UNITS["layer x token"], UNITS["head x position"]
    streams, mixed = (
        np.stack([np.asarray(values(model, jnp.asarray(window), kind)) for window in ids], 1) for kind in kinds
    )
    return streams[:-1], mixed


def layer_rows(block: Any, stream: np.ndarray, mixed: np.ndarray, words: Words, seed: int) -> list[Row]:
    """Return the measurements on the heads of a layer: a row for what is read or written, and by which directions."""
    draw, attention = np.random.default_rng(seed), block.attention
    x = np.asarray(block.norm_1(jnp.asarray(stream)), np.float64)
    x = x - x.mean(0)
    of_stream, slices = root(x.T @ x / len(x)), grouped(x, x.shape[1] // attention.head_features)
    rows: list[Row] = [
        {"part": "stream", "group": STREAM, "rank": effective_rank(of_stream.T), "words": words.kept(x)},
        {"part": "stream", "group": SLICES, "words": np.mean([words.kept(part) for part in slices])},
    ]
    for name, part in READS.items():
        kernel = np.asarray(getattr(attention, part).kernel[...], np.float64)
        count = kernel.shape[1] // attention.head_features
        rows += [{"part": name, **row} for row in _read(draw, x, of_stream, kernel, count, words)]
    kernel = np.asarray(attention.output.kernel[...], np.float64)
    return rows + [{"part": WRITES, **row} for row in _written(draw, mixed, kernel)]


def _directions(group: str, draws: list[np.ndarray]) -> Row:
    """Return overlap and effective rank of heads, the mean over draws."""
    ranks = [effective_rank(factor) for of_draw in draws for factor in of_draw]
    return {"group": group, "overlap": np.mean([overlap(of_draw) for of_draw in draws]), "rank": np.mean(ranks)}


def _read(
    draw: np.random.Generator, x: np.ndarray, of_stream: np.ndarray, kernel: np.ndarray, count: int, words: Words
) -> list[Row]:
    covariance, heads = of_stream.T @ of_stream, grouped(kernel, count)
    groups = {
        HEADS: [heads],
        SPLITS: [grouped(kernel[:, draw.permutation(kernel.shape[1])], count) for _ in range(DRAWS)],
        ROTATED: [rotated(draw, heads) for _ in range(DRAWS)],
    }
    together = {"group": TOGETHER, "recovered": recovered(kernel, covariance), "words": words.kept(x @ kernel)}
    return [
        together,
        *(
            {
                **_directions(group, [of_stream @ of_draw for of_draw in weights]),
                "recovered": np.mean([recovered(of_head, covariance) for of_head in weights[0]]),
                "words": np.mean([words.kept(x @ of_head) for of_head in weights[0]]),
            }
            for group, weights in groups.items()
        ),
        {"group": COMPONENTS, "overlap": unrelated_overlap(of_stream @ heads)},
    ]


def _written(draw: np.random.Generator, mixed: np.ndarray, kernel: np.ndarray) -> list[Row]:
    tokens, count, _ = mixed.shape
    flat = mixed.reshape(tokens, -1).astype(np.float64)
    flat = flat - flat.mean(0)
    covariance = flat.T @ flat / tokens

    def factors(order: np.ndarray) -> np.ndarray:
        return np.stack([kernel[of].T @ root(covariance[np.ix_(of, of)]).T for of in np.split(order, count)])

    heads = factors(np.arange(flat.shape[1]))
    splits = [factors(draw.permutation(flat.shape[1])) for _ in range(DRAWS)]
    traces, lengths = (heads**2).sum((1, 2)), np.sqrt([((f.T @ f) ** 2).sum() for f in heads])
    # The expectation of the product of two matrices of which one is rotated.
    cosines = np.outer(traces, traces) / kernel.shape[1] / np.outer(lengths, lengths)
    rotation = {"group": ROTATED, "overlap": cosines[np.triu_indices(count, 1)].mean()}
    return [_directions(HEADS, [heads]), _directions(SPLITS, splits), rotation]
