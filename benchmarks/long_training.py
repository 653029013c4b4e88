"""Claim: a training of ten thousand steps is traced back, and its parts sum to the change of a loss, twice.

Run `python -m benchmarks.long_training` (three minutes of processor time).

A tiny model and random tokens.  The change of the loss of other texts is split over the examples of every step, and
over weights; both sums are compared with the model before and after, run again in double precision.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import duat_jax as duat
from duat_jax.evaluation.running_text import token_losses
from duat_jax.forms.completeness import in_double_precision
from duat_jax.models.transformer import Transformer
from duat_jax.training import influence, train
from duat_jax.training.next_token import TrainingSettings, next_token_run
from experiments.environment import environment
from experiments.markdown import Fields
from fuzzing import models

RESULTS = Path(__file__).parent / "results" / "long_training.json"
STEPS = 10_000
MODEL, BATCH, TOKENS, TEXTS = 5, 4, 8, 16
"""The number that the checkpoint is drawn from; the texts of a step, their tokens, and the number of other texts."""


def loss(model: Transformer, texts: jax.Array) -> jax.Array:
    """Return the mean loss of texts.

    Args:
        model: the model.
        texts: their token ids.
    """
    return token_losses(model, texts).mean()


def measured(steps: int) -> dict[str, Any]:
    """Train, trace back, and return both sums beside the change of the loss.

    Args:
        steps: of the training.
    """
    chance = np.random.default_rng(0)
    # A word and its successor, mostly, so that there is something to learn.
    steps_of_words = chance.choice((1, 2), (1000, TOKENS), p=(0.9, 0.1)).cumsum(1)
    pieces = (steps_of_words + chance.integers(models.VOCAB, size=(1000, 1))) % models.VOCAB
    texts = jnp.asarray(pieces[:TEXTS])
    with tempfile.TemporaryDirectory() as folder:
        models.write(Path(folder) / "model", MODEL)
        model = duat.load(Path(folder) / "model")
        began = time.process_time()
        kept = train(next_token_run(pieces[TEXTS:], TrainingSettings(steps, BATCH)), model, Path(folder) / "states")
        trained = time.process_time()
        found = influence(kept, lambda model: loss(model, texts))
        traced = time.process_time()
        with jax.enable_x64(True):
            before, after = (float(loss(in_double_precision(each), texts)) for each in (model, kept.last))
    of_examples, of_weights = found.completeness, found.ledger.overall
    return {
        "steps": steps,
        "training_s": trained - began,
        "tracing_s": traced - trained,
        "before": before,
        "after": after,
        "parts": found.parts,
        "over examples": float(of_examples.sum),
        "over weights": float(of_weights.sum),
        "tolerances": [float(of_examples.tolerance), float(of_weights.tolerance)],
        "verdicts": [of_examples.verdict, of_weights.verdict],
    }


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    change = results["after"] - results["before"]
    return {
        "steps": f"{results['steps']:,}",
        "change": f"{change:.4f}",
        **{name: f"{abs(results[name] - change):.0e}" for name in ("over examples", "over weights")},
        "seconds": f"{results['tracing_s']:.0f}",
    }


def main() -> None:
    """Measure, print, and keep the result of a whole run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    results = {"environment": environment(), **measured(arguments.steps)}
    print(json.dumps(results, indent=1), fields(results))
    if arguments.steps >= STEPS:
        RESULTS.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
