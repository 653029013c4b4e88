"""Claim: a run of 1,000 steps of ten texts is traced back to every token in less than 15 minutes on two cores.

Run `python -m benchmarks.training_run` on two quiet cores (twenty minutes); `make pages` fills in
docs/how-to/training-runs.md.

The embedded model, ten texts of 64 tokens in a step of Adam, the loss of ten others as the number.  A segment's ledger
is `duat.training.follow`, from weights on the host to parts on the host.  Tracing back is `duat.training.influence`,
which runs every step again; its time for a step is the difference between runs of two lengths, so that compilation
isn't in it.  A whole run is timed with everything that it takes, compilation, too, and traced back to one text.
"""

import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import duat_jax as duat
from duat_jax.cli.compiled import keep_compiled
from duat_jax.evaluation.running_text import token_losses
from duat_jax.evaluation.statistics import IntervalEstimate
from duat_jax.models.transformer import Transformer
from duat_jax.training import Kept, Run, begin, follow, influence, train
from duat_jax.training.next_token import TrainingSettings, next_token_run
from duat_jax.training.over_weights.compute import Number
from duat_jax.training.run import Moment
from experiments.environment import environment
from experiments.markdown import Fields, table

RESULTS = Path(__file__).parent / "results" / "training_run.json"
BATCH, TOKENS, REPEATS, RUNS = 10, 64, 9, 6
SHORT, LONG, EVERY = 16, 48, 8
"""Steps of the two runs, and of a segment."""
STEPS = 1000
"""The steps of the whole run, which is timed once."""
TEXTS = 4
"""The number of texts whose losses are traced back at once."""


def make_run(steps: int) -> Run:
    """Return a training of the embedded model on random tokens.

    Args:
        steps: its length.
    """
    ids = np.random.default_rng(0).integers(0, 4000, (STEPS * BATCH, TOKENS))
    return next_token_run(ids, TrainingSettings(steps, BATCH))


def number(model: Transformer, texts: slice = slice(None)) -> jax.Array:
    """Return the loss of as many texts as a step has, or of some of them.

    Args:
        model: the model.
        texts: which.
    """
    ids = np.random.default_rng(1).integers(0, 4000, (BATCH, TOKENS))[texts]
    return token_losses(model, jnp.asarray(ids)).mean()


def of_text(text: int) -> Number:
    """Return the loss of one text as a function of the model.

    Args:
        text: which.
    """
    return partial(number, texts=slice(text, text + 1))


def seconds(do: Callable[[], Any]) -> float:
    """Return how long something takes, until its arrays are there.

    Args:
        do: does it.
    """
    began = time.perf_counter()
    jax.block_until_ready(do())
    return time.perf_counter() - began


def measured() -> dict[str, Any]:
    """Return the times of a step, of a segment's ledger, and of a step that is traced back."""
    model, run = duat.load(), make_run(LONG)
    moment, batch = Moment(model, run.optimiser.init(model)), run.batch(0)
    moment = run.step(0, moment, batch).after
    ledger = follow(number, begin(number, model), moment.weights)
    times: dict[str, list[float]] = {"step": [], "ledger": []}
    for _ in range(REPEATS):
        times["step"].append(seconds(lambda: run.step(1, moment, batch).after.weights))
        times["ledger"].append(seconds(lambda: list(follow(number, ledger, model).parts.values())))
    kept: list[Kept] = [train(make_run(steps), model, tempfile.mkdtemp(), every=EVERY) for steps in (SHORT, LONG)]
    several = {f"text {text}": of_text(text) for text in range(TEXTS)}
    numbers: dict[str, Any] = {"traced back": number, "of one text": of_text(0), "of several": several}
    for name, of in numbers.items():
        traced = [[seconds(partial(influence, each, of)) for each in kept] for _ in range(RUNS)]
        times[name] = [(long - short) / (LONG - SHORT) for short, long in traced[1:]]
    return {name: [median(of), *quantiles(of, n=4)[::2]] for name, of in times.items()}


def whole() -> dict[str, float]:
    """Return the seconds of a whole run and of tracing it back to one text, and the relative error of the sum."""
    model, run = duat.load(), make_run(STEPS)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        kept = train(run, model, folder)
        trained = time.perf_counter()
        explained = influence(kept, of_text(0))
        done = time.perf_counter()
    error = float(explained.completeness.error) / explained.difference
    return {"training": trained - began, "tracing back": done - trained, "error": abs(error)}


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation page.

    Args:
        results: what was kept.
    """
    names = {
        "step": "a step of training",
        "ledger": "the ledger of a segment, over weights",
        "traced back": "a step traced back, with its share of its segment's ledger",
        "of one text": "the same for the loss of one text",
        "of several": f"the same for the losses of {TEXTS} texts, each alone",
    }
    step, whole = results["step"][0], results["whole"]
    rows = [
        [words, IntervalEstimate(*results[name]).written(), f"{results[name][0] / step:.2f}"]
        for name, words in names.items()
    ]
    head = ["", "seconds, the median and quartiles", "steps of training"]
    return {
        "table": "\n".join(table(head, rows)),
        "minutes": f"{(whole['training'] + whole['tracing back']) / 60:.1f}",
        "of them training": f"{whole['training'] / 60:.1f}",
        "error": f"{whole['error']:.0e}",
        "further": f"{(results['of several'][0] - results['of one text'][0]) / (TEXTS - 1) / step:.2f}",
    }


def main() -> None:
    """Measure, print, and store the result."""
    keep_compiled()
    results = {"environment": environment(), "whole": whole(), **measured()}
    RESULTS.write_text(json.dumps(results, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    print(fields(results))


if __name__ == "__main__":
    main()
