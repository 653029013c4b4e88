"""Losses of language models by the position of a token, and of recalled tokens by distance."""

from collections.abc import Callable
from typing import Any

import numpy as np

from duat_jax.models.transformer import Transformer
from experiments.long_context.networks import losses_of
from experiments.long_context.reading import bins, label
from experiments.long_context.repeats import recall_texts
from experiments.long_context.tasks import HELD_OUT, RECALL, TASKS, TEXT, held_out_texts

DIGITS = 6

Found = dict[str, Any]
"""Measurements, as plain data."""


def rounded(values: Any) -> Any:
    """Return numbers as they are kept.

    Args:
        values: the numbers.
    """
    return np.round(np.asarray(values, float), DIGITS).tolist()


def by_position(losses: np.ndarray) -> list[float]:
    """Return the mean loss of each bin of positions: of tokens with 1, 2 to 3, 4 to 7, … tokens before them.

    Args:
        losses: of every token but the first of each text, `[texts, predicted]`.
    """
    of_bins = bins(np.arange(1, losses.shape[1] + 1), 2)
    return [float(losses[:, of_bins == i].mean()) for i in range(1, of_bins.max() + 1)]


def by_distance(losses: np.ndarray, distances: np.ndarray) -> dict[str, float]:
    """Return the mean loss of recalled tokens, by how far back the copied token stands, and of random tokens.

    Args:
        losses: of every token but the first of each text.
        distances: of every token of each text, as `recall_texts` returns them.
    """
    distances = distances[:, 1:]
    of_bins = bins(distances, 2)
    half = distances.shape[1] // 2
    return {
        "random": float(losses[:, :half].mean()),
        **{label(i, 2): float(losses[of_bins == i].mean()) for i in np.unique(of_bins[of_bins > 0]).tolist()},
    }


def validation_loss(name: str, model: Transformer) -> float:
    """Return the loss by which learning rates are chosen: of all tokens of a text, or of the recalled ones.

    Args:
        name: the task.
        model: the network.
    """
    if name == TEXT:
        return float(losses_of(model, held_out_texts(TASKS[TEXT].tokens)[0]).mean())
    ids, distances = recall_texts(HELD_OUT, TASKS[RECALL].tokens, seed=1000)
    return float(losses_of(model, ids)[distances[:, 1:] > 0].mean())


def measure_text(model: Transformer) -> Found:
    """Return a network's losses by position, on held-out text and on the same with its tokens shuffled.

    Args:
        model: the network.
    """
    ids = held_out_texts(TASKS[TEXT].tokens)[1]
    shuffled = np.random.default_rng(0).permuted(ids, axis=1)
    return {
        "positions": rounded(by_position(losses_of(model, ids))),
        "shuffled": rounded(by_position(losses_of(model, shuffled))),
    }


def measure_recall(model: Transformer) -> Found:
    """Return a network's losses of recalled tokens, by distance.

    Args:
        model: the network.
    """
    ids, distances = recall_texts(HELD_OUT, TASKS[RECALL].tokens, seed=1001)
    return {name: round(loss, DIGITS) for name, loss in by_distance(losses_of(model, ids), distances).items()}


MEASURES: dict[str, Callable[[Transformer], Found]] = {TEXT: measure_text, RECALL: measure_recall}
