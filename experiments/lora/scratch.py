"""Claim: "re-training models from scratch incurs significant computational costs" (Wang & Li, Section 4.4).

Run `make lora_scratch`; it writes experiments/results/lora_scratch.json and the tables of docs/lora.md, which states
beforehand what decides.  Beside it stand the adapted models of `make lora_why`.
"""

import time
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array

import duat_jax as duat
from duat_jax.cli.compiled import keep_compiled
from duat_jax.evaluation.statistics import students_mean
from duat_jax.models.transformer import Transformer
from experiments.kept_results import journal_of, store
from experiments.long_context.choice import best
from experiments.long_context.networks import fit
from experiments.lora.tuning import BATCH, METHODS, TASKS, Task, text_accuracies, text_losses, train
from experiments.pages import Fields, cells, kept, table
from training.train import optimizer

SEEDS, FACTORS, TUNED = (1, 2, 3), (0.5, 1.0, 2.0), 200
"""Seeds, factors of the embedded model's learning rates, and the steps by which they are chosen."""
LENGTHS = 100, 800
"""Steps of a training from the beginning; adapters have the first number."""
ADAPTED = "rank 16"

Results = dict[str, Any]


@cache
def task_of(name: str) -> Task:
    """Return the texts of a task.

    Args:
        name: in `TASKS`.
    """
    return TASKS[name](duat.load_tokenizer())


@jax.jit
def _train(model: Transformer, ids: Array, counted: Array, factor: Array) -> Transformer:
    def loss(model: Transformer, texts: Array) -> Array:
        return text_losses(model, texts, counted).mean()

    return fit(loss, model, ids, optax.chain(optimizer(len(ids)), optax.scale(factor)))[0]


def from_scratch(name: str, factor: float, seed: int, steps: int) -> Transformer:
    """Return the embedded model's network, trained on a task's texts from random weights, by that model's own rule.

    Args:
        name: of the task.
        factor: of all learning rates.
        seed: of the weights and of the order of the texts.
        steps: of the training.
    """
    task = task_of(name)
    draw = np.random.default_rng(seed)
    passes = -(-steps * BATCH // len(task.train))
    order = np.concatenate([draw.permutation(len(task.train)) for _ in range(passes)])[: steps * BATCH]
    ids = jnp.asarray(task.train[order].reshape(steps, BATCH, -1))
    model = Transformer(duat.load().config, rngs=nnx.Rngs(seed))
    return _train(model, ids, jnp.asarray(task.counted), jnp.asarray(factor))


def losses(model: Transformer, name: str, texts: np.ndarray) -> dict[str, float]:
    """Return the mean loss of texts and the share of right answers.

    Args:
        model: a model.
        name: of the task.
        texts: its texts.
    """
    counted, ids = jnp.asarray(task_of(name).counted), jnp.asarray(texts)
    return {
        "loss": float(text_losses(model, ids, counted).mean()),
        "right": float(text_accuracies(model, ids, counted).mean()),
    }


def trial(name: str, factor: float) -> dict[str, float]:
    """Return the losses on validation texts after few steps.

    Args:
        name: of the task.
        factor: of all learning rates.
    """
    return losses(from_scratch(name, factor, 0, TUNED), name, task_of(name).validation)


def measured(name: str, factor: float, seed: int, steps: int) -> dict[str, float]:
    """Return the losses on test texts.

    Args:
        name: of the task.
        factor: of all learning rates.
        seed: of the training.
        steps: its steps.
    """
    return losses(from_scratch(name, factor, seed, steps), name, task_of(name).test)


def seconds(name: str) -> dict[str, float]:
    """Return the processor time of a step, of adapters and of a training from the beginning, compiled before.

    Args:
        name: of the task.
    """
    rate = kept("lora_why")["tasks"][name]["methods"][ADAPTED]["rate"]
    steps = LENGTHS[0]
    ways = {
        ADAPTED: lambda: train(duat.load(), task_of(name), METHODS[ADAPTED], rate, 0),
        "from the beginning": lambda: from_scratch(name, 1.0, 0, steps),
    }
    found = {}
    for way, run in ways.items():
        jax.block_until_ready(run())
        began = time.process_time()
        jax.block_until_ready(run())
        found[way] = (time.process_time() - began) / steps
    return found


def _of_adapted(name: str) -> list[tuple[str, str, list[dict[str, float]]]]:
    """Return what the embedded model was, its steps, and its loss and right answers, as it is and adapted."""
    of = kept("lora_why")["tasks"][name]

    def means(found: dict[str, Any]) -> dict[str, float]:
        return {"loss": float(np.mean(found["loss"])), "right": float(np.mean(found["accuracy"]))}

    return [
        ("the embedded model as it is", "0", [means(of["base"])]),
        (f"the same with adapters, {ADAPTED}", str(LENGTHS[0]), list(map(means, of["methods"][ADAPTED]["seeds"]))),
    ]


def _right(seeds: list[dict[str, float]]) -> str:
    return f"{100 * np.mean([seed['right'] for seed in seeds]):.1f}"


def adapted(name: str) -> np.ndarray:
    """Return the test loss of the adapted model, of every seed.

    Args:
        name: of the task.
    """
    return np.array([seed["loss"] for seed in _of_adapted(name)[1][2]])


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page.

    Args:
        results: what was kept.
    """
    rows, times = [], []
    for name, of in results["tasks"].items():
        for what, steps, seeds in _of_adapted(name):
            loss = np.array([seed["loss"] for seed in seeds])
            written = students_mean(loss).written() if len(seeds) > 1 else f"{loss[0]:.3f}"
            rows.append([name, what, steps, written, "", _right(seeds), ""])
        for steps, seeds in of["lengths"].items():
            loss = np.array([seed["loss"] for seed in seeds])
            more = students_mean(loss - adapted(name))
            verdict = "not reached" if more.low > 0 else "reached" if more.high < 0 else "open"
            errors = students_mean(loss).written(), more.written(sign="+")
            rows.append([name, "from random weights", steps, *errors, _right(seeds), verdict])
        times.append([name, *(f"{1000 * spent:.0f}" for spent in of["seconds"].values())])
    head = ["task", "trained", "steps", "loss", "more than with adapters", "right, %", "the adapted model's loss"]
    lines = ["### Trained from the beginning", "", *table(head, rows), ""]
    lines += ["### Processor time of a step", "", *table(["task", f"{ADAPTED}, ms", "from the beginning, ms"], times)]
    text = "\n".join(lines)
    return {"tables": text, **cells(text)}


def main() -> None:
    """Train the models, store the results, and write the page."""
    keep_compiled()
    settings = {"seeds": SEEDS, "factors": FACTORS, "tuned": TUNED, "lengths": LENGTHS, "batch": BATCH}
    journal = journal_of("lora_scratch", settings)
    tasks: Results = {}
    for name in TASKS:
        trials = {factor: journal.once(f"{name}, {factor}", partial(trial, name, factor)) for factor in FACTORS}
        factor = best({factor: found["loss"] for factor, found in trials.items()})
        lengths = {
            str(steps): [
                journal.once(f"{name}, seed {seed}, {steps}", partial(measured, name, factor, seed, steps))
                for seed in SEEDS
            ]
            for steps in LENGTHS
        }
        spent = journal.once(f"{name}, seconds", partial(seconds, name))
        tasks[name] = {"trials": list(trials.items()), "factor": factor, "lengths": lengths, "seconds": spent}
    store("lora_scratch", {"settings": settings, "tasks": tasks})


if __name__ == "__main__":
    main()
