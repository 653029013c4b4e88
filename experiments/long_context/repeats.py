"""A recall task: random tokens, and after them segments of them once more, from chosen distances."""

import numpy as np
from jaxtyping import Int

SEGMENT = 8
"""Tokens of a segment; from its second token on, each can be predicted by what follows the one before it elsewhere."""
VOCAB = 256
"""Different tokens, so many that few are in a text by chance twice."""


def recall_texts(
    count: int, tokens: int, seed: int
) -> tuple[Int[np.ndarray, "texts tokens"], Int[np.ndarray, "texts tokens"]]:
    """Return texts of random tokens whose second half consists of segments of the first half.

    Args:
        count: how many texts.
        tokens: the length of each, twice a multiple of `SEGMENT`.
        seed: the seed of the draw.

    Returns:
        The texts, and of every token how far before it the copied one stands; 0 for one that isn't copied, and for the
        first token of a segment, which nothing predicts.
    """
    draw, half = np.random.default_rng(seed), tokens // 2
    random = draw.integers(0, VOCAB, (count, half))
    begins = draw.integers(0, half - SEGMENT + 1, (count, half // SEGMENT, 1))
    copied = (begins + np.arange(SEGMENT)).reshape(count, half)
    distances = np.arange(half, tokens) - copied
    distances[:, ::SEGMENT] = 0
    texts = np.concatenate([random, np.take_along_axis(random, copied, 1)], 1)
    return texts.astype(np.int32), np.concatenate([np.zeros_like(random), distances], 1)
