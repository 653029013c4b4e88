"""Models, draws of calibration windows, and windows of other text."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, token_losses, windows
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.texts import held_out_sources, manual, trained_sources

EMBEDDED, SMOLLM2 = "embedded", "SmolLM2-135M"
DRAWS, TEXTS, LENGTH = range(5), 64, 128
"""Draws of calibration text, windows of each, and tokens of a window."""
SOME = 25
"""Every which file of the trained sources calibration texts are drawn from: reading all of them takes a minute."""


class Draws(NamedTuple):
    """A model with the texts that it is pruned and measured on.

    Args:
        model: a language model.
        tokens: the text that calibration windows are drawn from.
        held_out: windows of other text.
        texts: how many windows a draw has.
    """

    model: Transformer
    tokens: Int[np.ndarray, "tokens"]
    held_out: Int[np.ndarray, "windows length"]
    texts: int = TEXTS

    def ids(self, draw: int) -> Int[np.ndarray, "windows length"]:
        """Return the calibration windows of a draw."""
        return windows(self.tokens, self.texts, self.held_out.shape[1], seed=draw)


def texts_of(name: str) -> tuple[list[str], list[str]]:
    """Return a model's calibration texts and others: Python's sources, or every other chapter of its manual each."""
    if name == EMBEDDED:
        return trained_sources()[::SOME], held_out_sources()
    chapters = list(dict.fromkeys(manual()))  # one stands there by two names
    return chapters[::2], chapters[1::2]


def draws_of(name: str, texts: int, held_out: int) -> Draws:
    """Return a model with so many windows in a draw of calibration text, and so many of held-out text."""
    path = smollm2.path() if name == SMOLLM2 else None
    model, tokenizer = duat.load(path), duat.load_tokenizer(path)
    calibration, other = (stream(tokenizer, of) for of in texts_of(name))
    return Draws(model, calibration, windows(other, held_out, LENGTH, seed=0), texts)


def window_losses(model: Transformer, ids: Int[np.ndarray, "windows length"], together: int = 8) -> np.ndarray:
    """Return the mean loss of every window, some at once."""
    batches = np.split(ids, range(together, len(ids), together))
    return np.concatenate([token_losses(model, jnp.asarray(batch)).mean(-1) for batch in batches])
