"""The texts of a training, those by which it is measured, and which of their tokens repeat."""

from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, windows
from experiments.texts import held_out_sources, trained_sources

SINGLE = 1
"""The number of the step in a segment that is also measured alone; the first one of all has a learning rate of zero."""


class Sizes(NamedTuple):
    """The sizes of a network, of its training and of what is measured.

    Args:
        layers: number of blocks.
        features: width of the residual stream.
        heads: of a layer.
        tokens: that a training text predicts.
        batch: texts of a step.
        steps: of the training.
        every: the number of steps between two kept states.
        measured: texts by which a state is measured; of those that were trained on, twice as many.
        short: tokens of a text whose copy is read, and twice those of a text in which parameters are frozen.
    """

    layers: int = 6
    features: int = 192
    heads: int = 4
    tokens: int = 128
    batch: int = 8
    steps: int = 2048
    every: int = 64
    measured: int = 32
    short: int = 64


class Texts(NamedTuple):
    """The texts that a training reads, and those by which its states are measured.

    Args:
        training: the texts of every step.
        trained_on: some of these, of steps that aren't measured alone.
        held_out: texts of files that it doesn't read.
        other_files: these and more of them.
        copied: each of some held-out texts twice.
        shuffled: the same texts, each after its own tokens in another order.
        after_another: the same texts, each after another one of them.
        means: held-out texts over which the means of parameters are taken.
        frozen: others, which are read with parameters frozen at these means.
    """

    training: Int[np.ndarray, "steps batch tokens"]
    trained_on: Int[np.ndarray, "texts tokens"]
    held_out: Int[np.ndarray, "texts tokens"]
    other_files: Int[np.ndarray, "texts tokens"]
    copied: Int[np.ndarray, "texts tokens"]
    shuffled: Int[np.ndarray, "texts tokens"]
    after_another: Int[np.ndarray, "texts tokens"]
    means: Int[np.ndarray, "texts tokens"]
    frozen: Int[np.ndarray, "texts tokens"]


@cache
def _streams() -> tuple[Int[np.ndarray, "tokens"], Int[np.ndarray, "tokens"]]:
    tokenizer = duat.load_tokenizer()
    return stream(tokenizer, trained_sources()), stream(tokenizer, held_out_sources())


def steps_of_trained_on(sizes: Sizes) -> Int[np.ndarray, "steps"]:
    """Return the steps whose texts stand for what was trained on; none of them is measured alone."""
    others = np.flatnonzero(np.arange(sizes.steps) % sizes.every != SINGLE)
    return others[:: max(1, len(others) // (2 * sizes.measured // sizes.batch))]


def draw_texts(sizes: Sizes, seed: int) -> Texts:
    """Return the texts of a training; those that are held out are the same for every seed."""
    read, held = _streams()
    length, count = sizes.tokens + 1, sizes.measured
    training = windows(read, sizes.steps * sizes.batch, length, seed=seed).reshape(sizes.steps, sizes.batch, length)
    short = windows(held, 3 * count, sizes.short, seed=0)
    copies = short[:count]
    in_another_order = np.random.default_rng(0).permuted(copies, axis=1)
    return Texts(
        training,
        training[steps_of_trained_on(sizes)].reshape(-1, length)[: 2 * count],
        windows(held, count, length, seed=1),
        windows(held, 16 * count, length, seed=1),
        np.concatenate([copies, copies], 1),
        np.concatenate([in_another_order, copies], 1),
        np.concatenate([np.roll(copies, 1, 0), copies], 1),
        short[count : 2 * count, : sizes.short // 2],
        short[2 * count :, : sizes.short // 2],
    )


def stands_before(ids: Int[np.ndarray, "*texts tokens"], length: int) -> Bool[np.ndarray, "*texts predicted"]:
    """Return of every token but the first whether it, with those before it, stands in its text before.

    Example:
        >>> stands_before(np.array([1, 2, 3, 1, 2, 1]), 2).tolist()
        [False, False, False, True, False]
        >>> stands_before(np.array([1, 2, 3, 1, 2, 1]), 1).tolist()
        [False, False, True, True, True]
    """
    tokens = ids.shape[-1]
    found = np.zeros((*ids.shape[:-1], tokens - 1), bool)
    for place in range(max(1, length), tokens):
        same = np.ones((*ids.shape[:-1], place - length + 1), bool)
        for back in range(length):
            earlier = ids[..., length - 1 - back : place - back]
            same &= earlier == ids[..., place - back, None]
        found[..., place - 1] = same.any(-1)
    return found


def continued(ids: Int[np.ndarray, "*texts tokens"]) -> Bool[np.ndarray, "*texts predicted"]:
    """Return of every token but the first whether the token before it stands in its text before, whatever follows."""
    seen = stands_before(ids, 1)
    return np.concatenate([np.zeros_like(seen[..., :1]), seen[..., :-1]], -1)


def control(which: Bool[np.ndarray, "*texts predicted"], seed: int) -> Bool[np.ndarray, "*texts predicted"]:
    """Return as many tokens of each text, drawn from all."""
    order = np.random.default_rng(seed).random(which.shape).argsort(-1).argsort(-1)
    return order < which.sum(-1, keepdims=True)
