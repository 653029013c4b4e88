"""The models whose heads are measured, and held-out text for each."""

from functools import cache

import numpy as np

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.texts import held_out_sources, manual

EMBEDDED, SMOLLM2 = "embedded", "SmolLM2-135M"


@cache
def loaded(name: str) -> Transformer:
    """Return a model by its name."""
    return duat.load(smollm2.path() if name == SMOLLM2 else None)


def pieces_of_text(name: str, count: int, tokens: int) -> np.ndarray:
    """Return pieces of text on which a model wasn't trained, or as far as is known not on these."""
    tokenizer = duat.load_tokenizer(smollm2.path() if name == SMOLLM2 else None)
    # One chapter of the manual stands there by two names.
    texts = list(dict.fromkeys(manual())) if name == SMOLLM2 else held_out_sources()
    return windows(stream(tokenizer, texts), count, tokens, seed=0)
