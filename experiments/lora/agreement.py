"""Agreement of two ledgers: whether the same units carry the change of the loss."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from duat_jax.evaluation.statistics import Estimate

DRAWS = 500
"""Draws of the bootstrap over texts."""

Resampled = Float[np.ndarray, "draws units"]
"""The mean ledger over all texts, in the first row, and over each draw of texts."""


def resampled(ledger: Float[np.ndarray, "texts units"]) -> Resampled:
    """Return the mean ledger over all texts, and over texts drawn with replacement, the same for all ledgers.

    Args:
        ledger: the part of every unit in each text's change.
    """
    texts = len(ledger)
    counts = np.random.default_rng(0).multinomial(texts, np.full(texts, 1 / texts), DRAWS)
    return np.concatenate([np.ones((1, texts)), counts]) @ ledger / texts


def rank_correlation(ledger: Resampled, other: Resampled) -> Float[np.ndarray, "draws"]:
    """Return Spearman's rank correlation of two ledgers, for every draw.

    Args:
        ledger: the parts of all units.
        other: those of another ledger.
    """
    ranks = [rankdata(of, axis=1) for of in (ledger, other)]
    first, second = (of - of.mean(1, keepdims=True) for of in ranks)
    return (first * second).sum(1) / np.sqrt((first**2).sum(1) * (second**2).sum(1))


def overlap(ledger: Resampled, other: Resampled) -> Float[np.ndarray, "draws"]:
    """Return the shared fraction of two ledgers, each divided by the sum of its parts' sizes, for every draw.

    It is `1 − ½ Σ |a − b|`: 1 for ledgers that are proportional, 0 if no unit has parts of one sign in both.

    Args:
        ledger: the parts of all units.
        other: those of another ledger.
    """
    first, second = (of / np.abs(of).sum(1, keepdims=True) for of in (ledger, other))
    return 1 - np.abs(first - second).sum(1) / 2


def shuffled(ledger: Resampled, layers: int, seed: int = 0) -> Resampled:
    """Return a ledger with its parts in a random order within each layer.

    Args:
        ledger: the parts of all units, layer after layer.
        layers: the number of layers.
        seed: the seed of the order.
    """
    draw, units = np.random.default_rng(seed), ledger.shape[1]
    order = [draw.permutation(of_layer) for of_layer in np.arange(units).reshape(layers, -1)]
    return ledger[:, np.concatenate(order)]


def agreements(pairs: Sequence[tuple[Resampled, Resampled]]) -> dict[str, list[float]]:
    """Return the means over pairs of ledgers of both measures, each with its interval over texts.

    Args:
        pairs: the pairs.
    """
    found = {}
    for name, measure in (("rank correlation", rank_correlation), ("overlap", overlap)):
        means = np.mean([measure(*pair) for pair in pairs], 0)
        estimate = Estimate(means[0], *np.quantile(means[1:], (0.025, 0.975)))
        found[name] = [round(float(number), 4) for number in estimate]
    return found
