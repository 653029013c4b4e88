"""Models of single tokens and of pairs of tokens by their counts: the loss of a text that isn't read further back."""

import numpy as np
from jaxtyping import Float, Int

COUNTS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""The numbers of counts by which pairs are mixed with single tokens, of which the best is taken."""


def single_tokens(read: Int[np.ndarray, "tokens"], vocabulary: int) -> Float[np.ndarray, "vocabulary"]:
    """Return the probability of every token by its count, each counted once more than it stands there.

    Example:
        >>> single_tokens(np.array([0, 0, 1]), 3).tolist()
        [0.5, 0.333..., 0.166...]
    """
    counts = np.bincount(read, minlength=vocabulary) + 1.0
    return counts / counts.sum()


def losses_of_counts(
    read: Int[np.ndarray, "texts tokens"],
    choosing: Int[np.ndarray, "texts tokens"],
    measured: Int[np.ndarray, "texts tokens"],
    vocabulary: int,
) -> dict[str, float]:
    """Return the mean losses of texts by a model of single tokens, and by one of pairs, in nats."""
    # `p(b | a) = (n(a, b) + k p(b)) / (n(a) + k)`, with the number `k` that is best on other texts.
    alone = single_tokens(read.ravel(), vocabulary)
    pairs, counts = np.unique(read[:, :-1].astype(np.int64) * vocabulary + read[:, 1:], return_counts=True)
    first = np.bincount(read[:, :-1].ravel(), minlength=vocabulary)

    def loss_of_pairs(ids: np.ndarray, mixed: float) -> float:
        a, b = ids[:, :-1], ids[:, 1:]
        place = np.minimum(np.searchsorted(pairs, a.astype(np.int64) * vocabulary + b), len(pairs) - 1)
        of_pair = np.where(pairs[place] == a.astype(np.int64) * vocabulary + b, counts[place], 0)
        return float(-np.log((of_pair + mixed * alone[b]) / (first[a] + mixed)).mean())

    best = min(COUNTS, key=lambda mixed: loss_of_pairs(choosing, mixed))
    return {
        "single tokens": float(-np.log(alone[measured[:, 1:]]).mean()),
        "pairs": loss_of_pairs(measured, best),
        "counts": best,
    }
