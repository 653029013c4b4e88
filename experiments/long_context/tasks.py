"""The text that networks of limited reach are trained and tested on, as bytes: that of the embedded model."""

from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from duat_jax.evaluation.running_text import windows
from experiments.long_context.repeats import draw_words
from experiments.texts import held_out_sources, trained_sources

BYTES = 256
"""The size of the vocabulary."""
HELD_OUT, TESTED = 256, 2048
"""Texts by which learning rates are chosen, and others that are tested."""


class Training(NamedTuple):
    """The sizes of a network, and of a step of its training.

    Args:
        tokens: the length of a text.
        layers: number of blocks.
        features: width of the residual stream.
        neurons: hidden units of the MLPs beside full attention; other networks have as many as make them equally large.
        batch: texts of a step.
    """

    tokens: int
    layers: int
    features: int
    neurons: int
    batch: int


TRAINING = Training(tokens=192, layers=3, features=64, neurons=256, batch=8)


@cache
def trained_stream() -> Int[np.ndarray, "tokens"]:
    """Return the text that the embedded model was trained on."""
    return _bytes(trained_sources())


@cache
def held_out_stream() -> Int[np.ndarray, "tokens"]:
    """Return the text that the embedded model wasn't trained on."""
    return _bytes(held_out_sources())


def _bytes(texts: list[str]) -> Int[np.ndarray, "tokens"]:
    return np.frombuffer("".join(texts).encode(), np.uint8).astype(np.int32)


def training_texts(training: Training, steps: int, seed: int) -> Int[np.ndarray, "steps batch tokens"]:
    """Return the texts of every step, none of which is read twice, with a repeated word in each."""
    texts = windows(trained_stream(), steps * training.batch, training.tokens, seed=seed)
    return draw_words(texts, seed).reshape(steps, training.batch, -1)


def held_out_texts(tokens: int, tested: int) -> tuple[Int[np.ndarray, "_ tokens"], Int[np.ndarray, "tested tokens"]]:
    """Return texts to choose learning rates by, and texts to test on."""
    texts = windows(held_out_stream(), HELD_OUT + tested, tokens, seed=0)
    return texts[:HELD_OUT], texts[HELD_OUT:]
