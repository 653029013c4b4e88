"""Texts that one training reads and the others don't."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

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
