"""Claim: "re-training models from scratch incurs significant computational costs" (Wang & Li, Section 4.4).

Run `python -m experiments lora_scratch`; it writes experiments/results/lora_scratch.json and the tables of
docs/findings/lora.md, which states beforehand what decides.  Beside it stand the adapted models of `python -m
experiments
lora_why`.
"""

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array

import duat_jax as duat
from duat_jax.evaluation.statistics import students_mean
from duat_jax.models.transformer import Transformer
from experiments.kept_results import journal_of, kept, store
from experiments.long_context.choice import best
from experiments.long_context.networks import fit
from experiments.lora.tuning import (
    BATCH,
    METHODS,
    TRAINED,
    Task,
    largest,
    text_accuracies,
    text_losses,
    train_along,
)
from experiments.markdown import Fields, cells, table
from training.train import optimizer

SEEDS, FACTORS, TUNED = (1, 2, 3), (0.5, 1.0, 2.0), 200
"""Seeds, factors of the embedded model's learning rates, and the steps by which they are chosen."""
LENGTHS = 100, 800
"""Steps of a training from the beginning; adapters have the first number."""
ONCE, FRESH = "largest of three", "largest of three, fresh texts"
"""The task as adapters had it, and with so many training texts, of the same digits, that none is read twice."""
ADAPTED = "rank 16"

Results = dict[str, Any]


@cache
def task_of(name: str) -> Task:
    """Return the texts of a task."""
    return largest(duat.load_tokenizer(), LENGTHS[-1] * BATCH - TRAINED if name == FRESH else 0)


def _known() -> dict[str, Any]:
    """Return the results of adapters."""
    of: dict[str, Any] = kept("lora_why")["tasks"][ONCE]
    return of


@jax.jit
def _train(model: Transformer, ids: Array, counted: Array, factor: Array) -> Transformer:
    def loss(model: Transformer, texts: Array) -> Array:
        return text_losses(model, texts, counted).mean()

    return fit(loss, model, ids, optax.chain(optimizer(len(ids)), optax.scale(factor)))[0]


def from_scratch(name: str, factor: float, seed: int, steps: int) -> Transformer:
    """Return the embedded model's network, trained on a task's texts from random weights, by that model's own rule."""
    task = task_of(name)
    draw = np.random.default_rng(seed)
    passes = -(-steps * BATCH // len(task.train))
    order = np.concatenate([draw.permutation(len(task.train)) for _ in range(passes)])[: steps * BATCH]
    ids = jnp.asarray(task.train[order].reshape(steps, BATCH, -1))
    model = Transformer(duat.load().config, rngs=nnx.Rngs(seed))
    return _train(model, ids, jnp.asarray(task.counted), jnp.asarray(factor))


def losses(model: Transformer, name: str, texts: np.ndarray) -> dict[str, float]:
    """Return the mean loss of texts and the share of right answers."""
    counted, ids = jnp.asarray(task_of(name).counted), jnp.asarray(texts)
    return {
        "loss": float(text_losses(model, ids, counted).mean()),
        "right": float(text_accuracies(model, ids, counted).mean()),
    }


def trial(name: str, factor: float) -> dict[str, float]:
    """Return the losses on validation texts after few steps."""
    return losses(from_scratch(name, factor, 0, TUNED), name, task_of(name).validation)


def measured(name: str, factor: float, seed: int, steps: int) -> dict[str, float]:
    """Return the losses on test texts, and on some that were trained on."""
    task, model = task_of(name), from_scratch(name, factor, seed, steps)
    on_trained = losses(model, name, task.train[: len(task.test)])["loss"]
    return losses(model, name, task.test) | {"trained": on_trained}


def seconds() -> dict[str, float]:
    """Return the processor time of a step, of adapters and of all weights, by the difference of two lengths."""
    model, task = duat.load(), task_of(ONCE)
    ids, counted = jnp.asarray(task.train[: 2 * LENGTHS[0] * BATCH]), jnp.asarray(task.counted)

    def adapters(steps: int) -> Any:
        return list(train_along(model, task, METHODS[ADAPTED], 1e-3, 0, (steps,)))

    def everything(steps: int) -> Any:
        return _train(model, ids[: steps * BATCH].reshape(steps, BATCH, -1), counted, jnp.asarray(1.0))

    def spent(run: Callable[[int], Any], steps: int) -> float:
        jax.block_until_ready(run(steps))
        began = time.process_time()
        jax.block_until_ready(run(steps))
        return time.process_time() - began

    few, many = 20, LENGTHS[0]
    ways = {ADAPTED: adapters, "from the beginning": everything}
    return {way: (spent(run, many) - spent(run, few)) / (many - few) for way, run in ways.items()}


def _of_adapted() -> list[tuple[str, str, list[dict[str, float]]]]:
    """Return what the embedded model was, its steps, and its loss and right answers, as it is and adapted."""
    of = _known()

    def means(found: dict[str, Any]) -> dict[str, float]:
        return {"loss": float(np.mean(found["loss"])), "right": float(np.mean(found["accuracy"]))}

    return [
        ("the embedded model as it is", "0", [means(of["base"])]),
        (f"the same with adapters, {ADAPTED}", str(LENGTHS[0]), list(map(means, of["methods"][ADAPTED]["seeds"]))),
    ]


def _right(seeds: list[dict[str, float]]) -> str:
    return f"{100 * np.mean([seed['right'] for seed in seeds]):.1f}"


def adapted() -> np.ndarray:
    """Return the test loss of the adapted model, of every seed."""
    return np.array([seed["loss"] for seed in _of_adapted()[1][2]])


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page."""
    rows = []
    for name, of in results["tasks"].items():
        for what, steps, seeds in _of_adapted():
            loss = np.array([seed["loss"] for seed in seeds])
            written = students_mean(loss).written() if len(seeds) > 1 else f"{loss[0]:.3f}"
            rows.append([name, what, steps, written, "", "", _right(seeds), ""])
        for steps, seeds in of["lengths"].items():
            loss = np.array([seed["loss"] for seed in seeds])
            more = students_mean(loss - adapted())
            verdict = "not reached" if more.low > 0 else "reached" if more.high < 0 else "open"
            on_trained = students_mean(np.array([seed["trained"] for seed in seeds])).written()
            errors = students_mean(loss).written(), more.written(sign="+"), on_trained
            rows.append([name, "from random weights", steps, *errors, _right(seeds), verdict])
    head = ["task", "trained", "steps", "loss", "more than with adapters", "loss on trained texts", "right, %"]
    lines = ["### Trained from the beginning", "", *table([*head, "the adapted model's loss"], rows), ""]
    times = [[way, f"{1000 * spent:.0f}"] for way, spent in results["seconds"].items()]
    text = "\n".join([*lines, "### Processor time of a step", "", *table(["trained", "milliseconds"], times)])
    return {"tables": text, **cells(text)}


def main() -> None:
    """Train the models, and store the results."""
    settings = {"seeds": SEEDS, "factors": FACTORS, "tuned": TUNED, "lengths": LENGTHS, "batch": BATCH}
    journal = journal_of("lora_scratch", settings)
    tasks: Results = {}
    for name in (ONCE, FRESH):
        trials = {factor: journal.once(f"{name}, {factor}", partial(trial, name, factor)) for factor in FACTORS}
        factor = best({factor: found["loss"] for factor, found in trials.items()})
        lengths = {
            str(steps): [
                journal.once(f"{name}, seed {seed}, {steps}", partial(measured, name, factor, seed, steps))
                for seed in SEEDS
            ]
            for steps in (LENGTHS[-1:] if name == FRESH else LENGTHS)
        }
        tasks[name] = {"trials": list(trials.items()), "factor": factor, "lengths": lengths}
    store("lora_scratch", {"settings": settings, "tasks": tasks, "seconds": journal.once("seconds", seconds)})
