"""Pruners compared: every ranking with every compensation, by the loss on text that none of them has seen."""

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
from duat_jax.pruning.pruner import how_many, pruned, scores
from duat_jax.pruning.scores import METHODS


class Pruner(NamedTuple):
    """One way to prune.

    Args:
        method: how they are ranked, a name in `METHODS` of what goes.
        compensation: what takes their place, a name in `COMPENSATIONS`.
        fraction: which share of them goes.
        budget: how many each layer loses, a name in `BUDGETS` or `MEASURED`.
        what: `"neurons"`, or whole `"layers"`, for which there is no budget.
    """

    method: str
    compensation: str
    fraction: float
    budget: str = "equal"
    what: str = "neurons"

    def __str__(self) -> str:
        how = self.what if self.what == "layers" else self.budget
        return f"{self.method}, {self.compensation}, {100 * self.fraction:.12g}%, {how}"


def losses_of(
    model: Transformer,
    pruners: Iterable[Pruner],
    ids: Int[np.ndarray, "texts tokens"],
    held_out: Int[np.ndarray, "others length"],
    *,
    layers: Sequence[int] | None = None,
    seed: int = 0,
    journal: Journal | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[Pruner, float]:
    """Return the loss that each pruned model has on held-out text; what removes neurons reads calibration text once.

    Args:
        model: a language model.
        pruners: the ways to prune it.
        ids: calibration text, token ids `[texts, tokens]`.
        held_out: other text, `[others, length]`.
        layers: which layers are pruned; all if absent.
        seed: of random scores.
        journal: keeps what is finished.
        progress: called with the number of pruned models that were run and that of all.
    """

    @cache
    def found(weights: str) -> list[Moments]:
        return moments(model, ids, weights)

    def loss(one: Pruner) -> float:
        if one.what == "layers":
            smaller = prune_layers(
                model, ids, one.fraction, method=one.method, compensation=one.compensation, seed=seed
            )
            return mean_loss(smaller, held_out)
        seen = found(METHODS[one.method].weights)
        ranked = scores(model, seen, one.method, one.compensation, layers=layers, seed=seed)
        removed = how_many(model, seen, ranked, one.compensation, one.fraction, one.budget, ids)
        return mean_loss(pruned(model, seen, ranked, removed, one.compensation), held_out)

    journal, every, results = journal or Journal(None, {}), list(pruners), {}
    for i, one in enumerate(every):
        results[one] = journal.once(f"seed {seed}, {one}", partial(loss, one))
        progress(i + 1, len(every))
    return results
