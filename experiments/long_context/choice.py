"""Sizes and seeds of networks of limited reach, and the search for a learning rate."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

from duat_jax.papers import matched
from experiments.long_context.networks import FULL, Sizes, count
from experiments.long_context.tasks import BYTES, TRAINING
from experiments.study import Piece

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


def searched(
    rates: Sequence[float], ladder: Sequence[float], trial: Callable[[float], Piece]
) -> Generator[Any, Any, tuple[float, float]]:
    """Yield trials of rates, and of further ones of a ladder until the best one has others on both sides.

    Returns:
        The best of the stated rates, and the best of all.
    """
    rows = yield [trial(rate) for rate in rates]
    losses = {of["rate"]: of["loss"] for [of] in rows}
    stated = best(losses)
    while (rate := best(losses)) in {min(losses), max(losses)} - {ladder[0], ladder[-1]}:
        further = ladder[ladder.index(rate) + (1 if rate == max(losses) else -1)]
        [of] = yield trial(further)
        losses[further] = of["loss"]
    return stated, best(losses)
