"""Texts that one training reads and the others don't."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from experiments.emergence.texts import Texts

TIMES, DRAWN = 8, 128
"""Stretches of a training, and the texts that are drawn from each."""
OTHER_FILES, READ_BY = "of other files", "read by seed "
"""Texts whose losses are measured at the end: of files that no training reads, and those that one training reads."""


def own_texts(texts: Texts, others: Sequence[Texts]) -> Int[np.ndarray, "times texts tokens"]:
    """Return texts of every stretch of a training that no other training reads: of each as many, evenly spread.

    Example:
        >>> from experiments.emergence.texts import Sizes, draw_texts
        >>> small = Sizes(tokens=8, batch=2, steps=32, measured=2, short=4)
        >>> own_texts(draw_texts(small, 0), [draw_texts(small, 1)]).shape
        (8, 8, 9)
    """
    length = texts.training.shape[-1]
    read = {text.tobytes() for other in others for text in other.training.reshape(-1, length)}
    own = [
        [text for text in stretch.reshape(-1, length) if text.tobytes() not in read]
        for stretch in np.split(texts.training, TIMES)
    ]
    count = min(DRAWN, *map(len, own))
    return np.array([texts[:: len(texts) // count][:count] for texts in own])


def lower_when_read(losses: dict[int, dict[str, list[float]]]) -> Float[np.ndarray, "pairs times"]:
    """Return of every pair of trainings how much lower the losses of texts are that a training read.

    Example:
        >>> losses = {0: {"read by seed 0": [2.0], "read by seed 1": [4.0]}}
        >>> lower_when_read(losses | {1: {"read by seed 0": [2.5], "read by seed 1": [3.8]}}).tolist()
        [[0.35]]
    """
    # Half of `L_b(R_a) − L_a(R_a) + L_a(R_b) − L_b(R_b)`: how well each of both models reads, and how hard the texts of
    # each are, cancel.

    def read_losses(model: int, texts: int) -> Float[np.ndarray, "times"]:
        return np.array(losses[model][f"{READ_BY}{texts}"])

    return np.array(
        [
            (read_losses(b, a) - read_losses(a, a) + read_losses(a, b) - read_losses(b, b)) / 2
            for a, b in combinations(losses, 2)
        ]
    ).round(6)
