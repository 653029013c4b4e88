"""A recall task within running text: a random word that stands in a text several times, at chosen distances."""

import numpy as np
from jaxtyping import Int

WORD, HINT = 12, 3
"""Letters of a word, and how many of a later copy say which word it is; the others can be recalled."""
COPIES = 4
"""The largest number of copies in a training text."""
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)


def with_words(
    ids: Int[np.ndarray, "texts tokens"], begins: Int[np.ndarray, "texts copies"], seed: int
) -> Int[np.ndarray, "texts tokens"]:
    """Return texts in which a word of random letters stands in the place of the text's own bytes, several times.

    Example:
        >>> text = np.frombuffer(b"." * 32, np.uint8)[None]
        >>> bytes(with_words(text, np.array([[2, 18]]), seed=0)[0])
        b'..wqnhibbaevqx....wqnhibbaevqx..'
    """
    words = np.random.default_rng(seed).choice(LETTERS, (len(ids), 1, WORD))
    changed = ids.copy()
    changed[np.arange(len(ids))[:, None, None], begins[..., None] + np.arange(WORD)] = words
    return changed


def draw_words(ids: Int[np.ndarray, "texts tokens"], seed: int) -> Int[np.ndarray, "texts tokens"]:
    """Return texts with two to four copies of a word, at most one in each quarter of a text."""
    draw, (texts, tokens) = np.random.default_rng(seed), ids.shape
    quarter = tokens // COPIES
    begins = draw.integers(0, quarter - WORD + 1, (texts, COPIES)) + quarter * np.arange(COPIES)
    shuffled = draw.permuted(begins, axis=1)
    kept = np.arange(COPIES) < draw.integers(2, COPIES + 1, (texts, 1))
    # A copy that isn't kept stands where the first one does.
    return with_words(ids, np.where(kept, shuffled, shuffled[:, :1]), seed)
