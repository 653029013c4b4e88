"""Sizes, seeds and the choice of a learning rate for networks of limited reach."""

from dataclasses import replace

from duat_jax.papers import matched
from experiments.long_context.networks import FULL, Sizes, count
from experiments.long_context.tasks import BYTES, TRAINING

SEEDS = 0, 1, 2


def sizes_of(kind: str) -> Sizes:
    """Return the sizes of a network with as many parameters as the one with full attention."""
    full = Sizes(
        kind=FULL,
        layers=TRAINING.layers,
        features=TRAINING.features,
        neurons=TRAINING.neurons,
        tokens=TRAINING.tokens,
        vocab=BYTES,
    )
    return matched(replace(full, kind=kind), count(full), count)


def best(trials: dict[float, float]) -> float:
    """Return the rate of the lowest validation loss."""
    return min(trials, key=trials.__getitem__)


def at_the_edge(trials: dict[float, float]) -> bool:
    """Return whether the best rate is the lowest or the highest of several, so that a better one may lie beyond."""
    return best(trials) in (min(trials), max(trials))
