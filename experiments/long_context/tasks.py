"""Texts that networks of limited reach are trained and tested on: running text, and a recall task."""

from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, windows
from experiments.long_context.repeats import VOCAB, recall_texts
from experiments.texts import held_out_sources, trained_sources

TEXT, RECALL = "text", "recall"
HELD_OUT = 128
"""Texts by which learning rates are chosen, and as many others that are tested."""


class Task(NamedTuple):
    """The sizes of a task's texts and networks, and of their training.

    Args:
        tokens: the length of a text.
        vocab: size of the vocabulary.
        layers: number of blocks.
        features: width of the residual stream.
        neurons: hidden units of the MLPs beside full attention; other networks have as many as make them equally large.
        batch: texts of a step.
        steps: steps of a training.
        trial: steps of the trainings by which learning rates are chosen.
    """

    tokens: int
    vocab: int
    layers: int
    features: int
    neurons: int
    batch: int
    steps: int
    trial: int


TASKS = {
    TEXT: Task(tokens=256, vocab=4096, layers=4, features=96, neurons=256, batch=8, steps=800, trial=200),
    RECALL: Task(tokens=128, vocab=VOCAB, layers=2, features=64, neurons=160, batch=32, steps=1500, trial=1500),
}


@cache
def trained_stream() -> Int[np.ndarray, "tokens"]:
    """Return the text that the embedded model was trained on, as its tokens."""
    return stream(duat.load_tokenizer(), trained_sources())


@cache
def held_out_stream() -> Int[np.ndarray, "tokens"]:
    """Return the text that the embedded model wasn't trained on, as its tokens."""
    return stream(duat.load_tokenizer(), held_out_sources())


def training_texts(name: str, task: Task, steps: int, seed: int) -> Int[np.ndarray, "steps batch tokens"]:
    """Return the texts of every step; none is read twice.

    Args:
        name: a name in `TASKS`.
        task: its sizes.
        steps: how many.
        seed: the seed of the draw.
    """
    count = steps * task.batch
    if name == RECALL:
        ids = recall_texts(count, task.tokens, seed)[0]
    else:
        ids = windows(trained_stream(), count, task.tokens, seed=seed)
    return ids.reshape(steps, task.batch, -1)


def held_out_texts(tokens: int) -> tuple[Int[np.ndarray, "texts tokens"], Int[np.ndarray, "texts tokens"]]:
    """Return texts to choose learning rates by, and texts to test on, of running text.

    Args:
        tokens: their length.
    """
    ids = windows(held_out_stream(), 2 * HELD_OUT, tokens, seed=0)
    return ids[:HELD_OUT], ids[HELD_OUT:]
