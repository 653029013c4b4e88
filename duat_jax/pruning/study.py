"""Comparison of pruning methods and compensations, by the loss on held-out text."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from duat_jax.evaluation.journal import Journal
from duat_jax.evaluation.running_text import mean_loss
from duat_jax.models.transformer import Transformer
from duat_jax.pruning.calibration import Moments, moments
from duat_jax.pruning.layers import prune_layers
from duat_jax.pruning.pruner import pruned, removal_counts, scores
from duat_jax.pruning.scores import METHODS


class Pruner(NamedTuple):
    """The settings of one pruned model.

    Args:
        method: the ranking, such as `"contributions"`.
        compensation: `"none"`, `"mean"` or `"refit"`, as in `prune`.
        fraction: the fraction to remove.
        budget: the budget of each layer, `"equal"`, `"together"` or `"measured"`, as in `prune`.
        what: what is pruned: `"neurons"`, or whole `"layers"`, which have no budget.
    """

    method: str
    compensation: str
    fraction: float
    budget: str = "equal"
    what: str = "neurons"

    def __str__(self) -> str:
        suffix = self.what if self.what == "layers" else self.budget
        return f"{self.method}, {self.compensation}, {100 * self.fraction:.12g}%, {suffix}"


def losses_of(
    model: Transformer,
    pruners: Iterable[Pruner],
    ids: Int[np.ndarray, "texts tokens"],
    held_out: Int[np.ndarray, "others length"],
    *,
    layers: Sequence[int] | None = None,
    seed: int = 0,
    journal: Journal | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Pruner, float]:
    """Return each pruned model's loss on held-out text, in nats per token.

    Calibration text is read once for all methods with the same weights.

    Args:
        model: a language model.
        pruners: the settings of the pruned models.
        ids: calibration text, token ids `[texts, tokens]`.
        held_out: held-out text, token ids `[others, length]`.
        layers: which layers are pruned; all if absent.
        seed: the seed of random scores.
        journal: stores finished results.
        progress: called with the number of pruned models evaluated and their total number.
    """

    @cache
    def moments_with(weights: str) -> list[Moments]:
        return moments(model, ids, weights)

    def loss(pruner: Pruner) -> float:
        if pruner.what == "layers":
            smaller = prune_layers(
                model, ids, pruner.fraction, method=pruner.method, compensation=pruner.compensation, seed=seed
            )
            return mean_loss(smaller, held_out)
        layer_moments = moments_with(METHODS[pruner.method].weights)
        ranked = scores(model, layer_moments, pruner.method, pruner.compensation, layers=layers, seed=seed)
        removed = removal_counts(model, layer_moments, ranked, pruner.compensation, pruner.fraction, pruner.budget, ids)
        return mean_loss(pruned(model, layer_moments, ranked, removed, pruner.compensation), held_out)

    journal, pruners, results = journal or Journal(None, {}), list(pruners), {}
    for i, pruner in enumerate(pruners):
        results[pruner] = journal.once(f"seed {seed}, {pruner}", partial(loss, pruner))
        if progress is not None:
            progress(i + 1, len(pruners))
    return results
