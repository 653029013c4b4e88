"""Agreement of two ledgers: whether the same units carry the change of the loss."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

Means = Float[np.ndarray, "rows units"]
"""The mean ledger over all texts, in the first row, and over all texts but one, for each."""


def means_of(ledger: Float[np.ndarray, "texts units"]) -> Means:
    """Return the mean ledger over all texts, and without each text."""
    mean, texts = ledger.mean(0), len(ledger)
    return np.concatenate([mean[None], (texts * mean - ledger) / (texts - 1)])


def rank_correlation(ledger: Means, other: Means) -> Float[np.ndarray, "rows"]:
    """Return Spearman's rank correlation of two ledgers, for every row."""
    ranks = [rankdata(of, axis=1) for of in (ledger, other)]
    first, second = (of - of.mean(1, keepdims=True) for of in ranks)
    return (first * second).sum(1) / np.sqrt((first**2).sum(1) * (second**2).sum(1))


def overlap(ledger: Means, other: Means) -> Float[np.ndarray, "rows"]:
    """Return the shared fraction of two ledgers, each divided by the sum of its parts' sizes, for every row."""
    # It is `1 − ½ Σ |a − b|`: 1 for ledgers that are proportional, 0 if no unit has parts of one sign in both.
    first, second = (of / np.abs(of).sum(1, keepdims=True) for of in (ledger, other))
    return 1 - np.abs(first - second).sum(1) / 2


def shuffled(ledger: Means, layers: int, seed: int = 0) -> Means:
    """Return a ledger with its parts in a random order within each layer."""
    draw, units = np.random.default_rng(seed), ledger.shape[1]
    order = [draw.permutation(of_layer) for of_layer in np.arange(units).reshape(layers, -1)]
    return ledger[:, np.concatenate(order)]


def agreements(pairs: Sequence[tuple[Means, Means]]) -> dict[str, list[float]]:
    """Return the means over pairs of ledgers of both measures, each with its interval over texts, by the jackknife."""
    # A bootstrap would draw texts twice, so that resampled ledgers agreed less than the ledgers themselves.
    found = {}
    for name, measure in (("rank correlation", rank_correlation), ("overlap", overlap)):
        value, *without = np.mean([measure(*pair) for pair in pairs], 0)
        reach = 1.96 * np.std(without) * np.sqrt(len(without) - 1)
        found[name] = [round(float(number), 4) for number in (value, value - reach, value + reach)]
    return found
