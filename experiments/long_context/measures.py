"""Losses of language models by the position of a byte, and of a recalled word by distance."""

from typing import Any

import numpy as np

from duat_jax.models.transformer import Transformer
from experiments.long_context.networks import losses_of
from experiments.long_context.reading import bins
from experiments.long_context.repeats import HINT, WORD, with_words
from experiments.long_context.tasks import HELD_OUT, TESTED, TRAINING, held_out_texts

DIGITS = 6
DISTANCES = 16, 32, 64, 128, 160
"""Distances of the recall task."""
EARLY, LATE = 32, 128
"""The fewest bytes before those whose losses are compared: the first number is beyond the reach of windows and
convolutions over all layers."""

Found = dict[str, Any]
"""Measurements, as plain data."""


def rounded(values: Any) -> Any:
    """Return numbers as they are kept."""
    return np.round(np.asarray(values, float), DIGITS).tolist()


def by_position(losses: np.ndarray) -> list[float]:
    """Return the mean loss of each bin of positions: of bytes with 1, 2 to 3, 4 to 7, … bytes before them."""
    of_bins = bins(np.arange(1, losses.shape[1] + 1), 2)
    return [float(losses[:, of_bins == i].mean()) for i in range(1, of_bins.max() + 1)]


def gains(model: Transformer, texts: np.ndarray) -> dict[str, list[float]]:
    """Return each text's mean loss of its bytes from 128 on, and its growth with the first 96 bytes cut off."""
    # The bytes are the same ones, so that nothing but the context differs.
    late = losses_of(model, texts)[:, LATE - 1 :]
    cut = losses_of(model, texts[:, LATE - EARLY :])[:, EARLY - 1 :]
    return {"late": rounded(late.mean(1)), "gain": rounded((cut - late).mean(1))}


def recall(model: Transformer, texts: np.ndarray) -> dict[str, list[float]]:
    """Return the mean loss of the letters that can be recalled, by distance, and of the same in their first copy."""
    count, tokens = texts.shape
    place = tokens - WORD
    found: dict[str, list[float]] = {"recall": [], "recall, first copy": []}
    for distance in DISTANCES:
        changed = with_words(texts, np.tile([place - distance, place], (count, 1)), seed=distance)
        losses = losses_of(model, changed)
        # The loss of a byte stands one place before it.
        found["recall"].append(float(losses[:, place + HINT - 1 :].mean()))
        first = slice(place - distance + HINT - 1, place - distance + WORD - 1)
        found["recall, first copy"].append(float(losses[:, first].mean()))
    return {name: rounded(losses) for name, losses in found.items()}


def measure(model: Transformer) -> Found:
    """Return a network's losses by position, on held-out text and on its shuffled bytes, and its recall."""
    texts = held_out_texts(TRAINING.tokens, TESTED)[1]
    fewer = texts[:HELD_OUT]
    shuffled = np.random.default_rng(0).permuted(fewer, axis=1)
    return {
        "positions": rounded(by_position(losses_of(model, texts))),
        **gains(model, texts),
        "gain, shuffled": gains(model, shuffled)["gain"],
        **recall(model, fewer),
    }
