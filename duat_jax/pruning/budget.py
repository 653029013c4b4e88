"""Budgets: the number of neurons to remove from each layer."""

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float, Int

from duat_jax.evaluation.running_text import mean_loss
from duat_jax.models.transformer import Transformer

Scores = Mapping[int, Float[np.ndarray, "neurons"]]
"""The scores of the neurons of every pruned layer, by layer index."""

MEASURED = "measured"
FRACTIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 1.0)
"""The fractions at which a layer's loss is measured; between them it is interpolated linearly."""


def equally(ranked: Scores, fraction: float) -> dict[int, int]:
    """Return how many neurons to remove from each layer if every layer loses the same fraction."""
    return {layer: round(fraction * len(of_layer)) for layer, of_layer in ranked.items()}


def together(ranked: Scores, fraction: float) -> dict[int, int]:
    """Return how many neurons to remove from each layer if the neurons of all layers are ranked as one list."""
    layer_of = np.concatenate([np.full(len(of_layer), layer) for layer, of_layer in ranked.items()])
    order = np.argsort(np.concatenate(list(ranked.values())), kind="stable")[: round(fraction * len(layer_of))]
    return {layer: int((layer_of[order] == layer).sum()) for layer in ranked}


BUDGETS: dict[str, Callable[[Scores, float], dict[int, int]]] = {"equal": equally, "together": together}
"""The budgets that depend on the scores alone."""


def cheapest(
    costs: Mapping[int, Float[np.ndarray, "tried"]], sizes: Mapping[int, int], fraction: float
) -> dict[int, int]:
    """Return how many neurons to remove from each layer so that the sum of the layers' costs is smallest.

    Example:
        >>> free = np.zeros(len(FRACTIONS))
        >>> cheapest({0: free, 1: free + np.array(FRACTIONS)}, {0: 100, 1: 100}, 0.45)
        {0: 90, 1: 0}
    """
    # The cost of a layer is replaced by the largest convex function below its measured points, so that always removing
    # the next neuron where it costs least is optimal.
    slopes, layer_of = [], []
    for layer, cost in costs.items():
        shares = np.arange(sizes[layer] + 1) / sizes[layer]
        lower = np.interp(shares, *_lower_hull(np.array(FRACTIONS), cost))
        slopes.append(np.diff(lower))
        layer_of.append(np.full(sizes[layer], layer))
    of_all = np.concatenate(layer_of)
    order = np.argsort(np.concatenate(slopes), kind="stable")[: round(fraction * sum(sizes.values()))]
    return {layer: int((of_all[order] == layer).sum()) for layer in costs}


def _lower_hull(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the vertices of the largest convex function below some points."""
    corners: list[int] = []
    for i in range(len(x)):
        while len(corners) > 1 and (y[corners[-1]] - y[corners[-2]]) * (x[i] - x[corners[-2]]) >= (
            y[i] - y[corners[-2]]
        ) * (x[corners[-1]] - x[corners[-2]]):
            corners.pop()
        corners.append(i)
    return x[corners], y[corners]


def measured(
    ranked: Scores,
    fraction: float,
    without: Callable[[Mapping[int, int]], Transformer],
    ids: Int[np.ndarray, "texts tokens"],
) -> dict[int, int]:
    """Return how many neurons to remove from each layer, by the loss measured with each layer pruned alone."""
    none = dict.fromkeys(ranked, 0)
    costs = {
        layer: np.array([mean_loss(without(none | {layer: round(share * len(of_layer))}), ids) for share in FRACTIONS])
        for layer, of_layer in ranked.items()
    }
    return cheapest(costs, {layer: len(of_layer) for layer, of_layer in ranked.items()}, fraction)
