"""Texts of many lengths as few shapes: padded on the right to a bucket's length, a few at a time."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

SHORTEST, LARGEST_BATCH = 16, 8
"""The length of the shortest bucket, and how many tables are made at a time."""


class Inputs(NamedTuple):
    """What a model reads, padded: a pytree.

    Args:
        inputs: token ids, `[texts, tokens]`; or pixels, `[images, channels, height, width]`.
        real: true for real tokens, `[texts, tokens]`.
        segments: of each token the segment, `[texts, tokens]`; all of segment 0 if absent.
    """

    inputs: Any
    real: Bool[np.ndarray, "texts tokens"]
    segments: Int[np.ndarray, "texts tokens"] | None = None


class Batch(NamedTuple):
    """Texts of one bucket.

    Args:
        indices: which texts they are.
        rows: the text of each row: the indices, and the first one again where rows are left over.
        inputs: the texts.
    """

    indices: tuple[int, ...]
    rows: tuple[int, ...]
    inputs: Inputs


def bucket(tokens: int, longest: int) -> int:
    """Return the length that a text is padded to: the next power of two, or the longest text that a model takes.

    Args:
        tokens: the text's length.
        longest: the longest text that the model takes.

    Example:
        >>> [bucket(tokens, 100) for tokens in (1, 17, 65)]
        [16, 32, 100]
    """
    return min(max(SHORTEST, _power_of_two(tokens)), longest)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def batches(texts: Sequence[Int[np.ndarray, "_"]], longest: int, targets: int) -> Iterator[Batch]:
    """Return all texts, padded; the number of rows is a power of two, so that few programs are compiled.

    Args:
        texts: token ids of each.
        longest: the longest text that the model takes.
        targets: how many tables are made of each.
    """
    most = max(1, LARGEST_BATCH // _power_of_two(targets))
    found: dict[int, list[int]] = {}
    for i, text in enumerate(texts):
        found.setdefault(bucket(len(text), longest), []).append(i)
    for length, indices in found.items():
        for start in range(0, len(indices), most):
            chosen = indices[start : start + most]
            rows = chosen + chosen[:1] * (_power_of_two(len(chosen)) - len(chosen))
            ids = np.zeros((len(rows), length), np.int32)
            for row, i in zip(ids, rows, strict=True):
                row[: len(texts[i])] = texts[i]
            lengths = np.array([len(texts[i]) for i in rows])
            yield Batch(tuple(chosen), tuple(rows), Inputs(ids, np.arange(length) < lengths[:, None]))
