"""Texts of consecutive runs of tokens, as they stand in the text of all."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise, takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def run_texts(tokenizer: "Tokenizer", texts: Iterable[Sequence[Sequence[int]]]) -> list[list[str]]:
    """Return the texts of runs of tokens that follow each other, which together are the text of all of them.

    Example:
        >>> import duat_jax as duat
        >>> tokenizer = duat.load_tokenizer()
        >>> run_texts(tokenizer, [[tokenizer.encode("import os").ids, tokenizer.encode(" as").ids]])
        [['import os', ' as']]
    """
    # A tokenizer decodes a run alone as the beginning of a text, and may leave out the space before it. A character
    # whose bytes stand in two runs belongs to the last one.
    beginnings = [list(accumulate((list(run) for run in runs), initial=[])) for runs in texts]
    flat = [ids for each in beginnings for ids in each]
    decoded = iter(tokenizer.decode_batch(flat, skip_special_tokens=False))
    return [_differences([next(decoded) for _ in each]) for each in beginnings]


def _differences(texts: list[str]) -> list[str]:
    """Return what each text has after the one before it, where each begins with that but for the end of it."""
    ends = [*(_shared(*pair) for pair in pairwise(texts)), len(texts[-1])]
    return [text[begin:end] for text, (begin, end) in zip(texts[1:], pairwise(ends), strict=True)]


def _shared(first: str, second: str) -> int:
    """Return the number of characters with which both of two texts begin."""
    equal = (a == b for a, b in zip(first, second, strict=False))
    return sum(1 for _ in takewhile(bool, equal))
