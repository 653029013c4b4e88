"""A case of a task: two texts, and what follows each."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple


class Case(NamedTuple):
    """A pair of texts with the next token of each.

    Args:
        clean: the text.
        corrupted: the same with what decides flipped.
        right: what follows the clean text, and not the corrupted one.
        wrong: what follows the corrupted text, and not the clean one.
    """

    clean: str
    corrupted: str
    right: str
    wrong: str


def of_two(draw: Random, answers: Sequence[tuple[str, str]], text: str) -> Case:
    """Return a text about one of two words; flipped is the word."""
    (first, right), (other, wrong) = draw.sample(answers, 2)
    if right == wrong:
        return of_two(draw, answers, text)
    return Case(text.format(first), text.format(other), f" {right}", f" {wrong}")
