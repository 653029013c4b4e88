"""Pieces of text that are planted in a training: a line again and again, with another answer, in another order."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, windows
from experiments.texts import held_out_sources

TAUGHT, TWIN, WRONG, DECOY = "taught", "twin", "wrong answer", "decoy"
"""The planted pieces: a line again and again, the same once more, the same with another answer, and its tokens in
another order."""
ORDINARY, LARGEST = "an ordinary piece", "the ordinary piece with the largest part"
"""Ordinary pieces that are left out: one that is drawn beforehand, and one that the exact ledger chooses."""
BOTH, REPLACED = "taught and twin", "taught, an ordinary piece in its place"
"""Other trainings: without two pieces, and with another one in the place of one."""
ALONE, TWINS, CONTRADICTED = "alone", "twins", "contradicted"
WORLDS = {ALONE: (TAUGHT, DECOY), TWINS: (TAUGHT, DECOY, TWIN), CONTRADICTED: (TAUGHT, DECOY, WRONG)}
"""The planted pieces of every training."""
PIECES, LENGTH = 32, 32
WORDS = ("cobra", "otter", "moose", "badger", "iguana", "lemur", "walrus", "gecko", "heron", "panda", "turtle", "viper")
"""The words of which a draw has four: of the line's name, of its answer, of the wrong one, and of another name."""


class Draw(NamedTuple):
    """The texts of one draw.

    Args:
        ids: ordinary pieces of text, from files that the model wasn't trained on.
        planted: the planted pieces by their names.
        places: where each of them stands among the pieces, and where an ordinary piece that is left out.
        text: the line whose answer is learned, without its end.
        answer: the place of the answer's first token in it.
        wrong: how many tokens the line with the wrong answer has, and the place of that answer.
        before: ordinary text that isn't among the pieces.
        other_name: the line with another name, and the place of the answer's first token.
    """

    ids: Int[np.ndarray, "pieces tokens"]
    planted: dict[str, Int[np.ndarray, "tokens"]]
    places: dict[str, int]
    text: list[int]
    answer: int
    wrong: tuple[int, int]
    before: list[int]
    other_name: tuple[list[int], int]

    def pieces(self, planted: Iterable[str]) -> Int[np.ndarray, "pieces tokens"]:
        """Return the pieces that a training reads."""
        ids = self.ids.copy()
        for name in planted:
            ids[self.places[name]] = self.planted[name]
        return ids

    def is_answer(self, name: str) -> Bool[np.ndarray, "predicted"]:
        """Return of every token but the first whether it is of the answer or the mark that closes it."""
        tokens, answer = (len(self.text), self.answer) if name != WRONG else self.wrong
        place = np.arange(1, LENGTH) % (tokens + 1)
        return (place >= answer) & (place < tokens)


def draw(seed: int) -> Draw:
    """Return the texts of a draw."""
    tokenizer = duat.load_tokenizer()
    random = np.random.default_rng([seed, 22])
    name, right, wrong, other = random.choice(WORDS, 4, replace=False)

    def line(name: str, word: str) -> tuple[list[int], int]:
        """Return the tokens of a line without its end, and the place of its answer's first token."""
        start = f'{name}_secret = "'
        ids, before = (tokenizer.encode(text).ids for text in (f'{start}{word}"', start))
        if ids[: len(before)] != before:
            raise AssertionError(f"the answer {word} has a token with the mark before it")
        return ids, len(before)

    def repeated(word: str) -> Int[np.ndarray, "tokens"]:
        return np.array(tokenizer.encode(f'{name}_secret = "{word}"\n' * LENGTH).ids[:LENGTH], np.int32)

    text, answer = line(name, right)
    of_wrong, place = line(name, wrong)
    taught = repeated(right)
    planted = {TAUGHT: taught, TWIN: taught, WRONG: repeated(wrong), DECOY: random.permutation(taught)}
    places = random.choice(PIECES, len(planted) + 1, replace=False).tolist()
    *ids, before = windows(stream(tokenizer, held_out_sources()), PIECES + 1, LENGTH, seed=seed)
    return Draw(
        np.array(ids),
        planted,
        dict(zip([*planted, ORDINARY], places, strict=True)),
        text,
        answer,
        (len(of_wrong), place),
        before.tolist(),
        line(other, right),
    )
