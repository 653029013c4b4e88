"""Models, draws of calibration windows, and windows of other text."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.pruning.run import SOME
from experiments.texts import held_out_sources, manual, trained_sources

DRAWS, TEXTS, LENGTH, HELD_OUT = range(5), 64, 128, 128
"""Draws of calibration text, windows of each, tokens of a window, and windows of held-out text."""
FEW = 32
"""Windows of a draw, and of held-out text, for the larger model."""


class Draws(NamedTuple):
    """A model with the texts that it is pruned and measured on.

    Args:
        model: a language model.
        tokens: the text that calibration windows are drawn from.
        held_out: windows of other text.
        texts: how many windows a draw has.
        draws: the draws.
    """

    model: Transformer
    tokens: Int[np.ndarray, "tokens"]
    held_out: Int[np.ndarray, "windows length"]
    texts: int = TEXTS
    draws: range = DRAWS

    def ids(self, draw: int) -> Int[np.ndarray, "windows length"]:
        """Return the calibration windows of a draw."""
        return windows(self.tokens, self.texts, self.held_out.shape[1], seed=draw)


def embedded() -> Draws:
    """Return the embedded model with the texts of the study of neurons."""
    model = duat.load()
    tokenizer = model.tokenizer
    held_out = windows(stream(tokenizer, held_out_sources()), HELD_OUT, LENGTH, seed=0)
    return Draws(model, stream(tokenizer, trained_sources()[::SOME]), held_out)


def smollm2_135m() -> Draws:
    """Return SmolLM2-135M with chapters of Python's manual, every other one for calibration."""
    path = smollm2.path()
    model, tokenizer = duat.load(path), duat.load_tokenizer(path)
    chapters = list(dict.fromkeys(manual()))  # one stands there by two names
    held_out = windows(stream(tokenizer, chapters[1::2]), FEW, LENGTH, seed=0)
    return Draws(model, stream(tokenizer, chapters[::2]), held_out, FEW)
