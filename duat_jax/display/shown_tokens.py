"""The tokens of a table or picture: of a long text the largest ones, and all others together, so that sums stay."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class ShownTokens(NamedTuple):
    """Tokens that stand by themselves, and others that stand together in one entry after them.

    Args:
        alone: the indices of the ones, in the order of the text.
        others: the indices of the others; empty if there are none.
    """

    alone: Int[np.ndarray, "shown"]
    others: Int[np.ndarray, "others"]

    def gathered(self, numbers: Float[np.ndarray, "*rows tokens"]) -> Float[np.ndarray, "*rows entries"]:
        """Return the numbers of the tokens that stand by themselves, and the sum of the others'.

        Example:
            >>> largest_tokens(np.array([3.0, 1.0, 2.0, 5.0]), 2).gathered(np.array([3.0, 1.0, 2.0, 5.0])).tolist()
            [3.0, 5.0, 3.0]
        """
        alone = numbers[..., self.alone]
        if not len(self.others):
            return alone
        return np.concatenate([alone, numbers[..., self.others].sum(-1, keepdims=True)], -1)

    def labels(self, labels: Sequence[str]) -> list[str]:
        """Return the labels of the entries."""
        return [labels[token] for token in self.alone] + ([f"{len(self.others)} others"] if len(self.others) else [])


def largest_tokens(sizes: Float[np.ndarray, "tokens"], count: int) -> ShownTokens:
    """Return the largest tokens to stand by themselves."""
    alone = np.sort(np.argsort(-sizes, kind="stable")[:count])
    return ShownTokens(alone, np.setdiff1d(np.arange(len(sizes)), alone))


LONGEST, LARGEST = 80, 40
"""The largest number of tokens that all stand by themselves in a picture, and how many of more tokens do."""


def tokens_of_picture(table: Float[np.ndarray, "rows tokens"]) -> ShownTokens:
    """Return which tokens a picture or heat map shows by themselves: all of a short text, the largest of a long one."""
    sizes = np.abs(table).max(0)
    return largest_tokens(sizes, len(sizes) if len(sizes) <= LONGEST else min(LARGEST, int((sizes > 0).sum())))
