"""Does a model from random weights stay behind an adapted one, even with eight times the steps?

Wang & Li: "Re-training models from scratch incurs significant computational costs, so reusing well-trained models for
new tasks is both practical and resource-efficient" (Section 4.4).  The embedded model's network is trained from random
weights on *largest of three*, the task of `lora_why`, on the same texts, by the rule that trained the embedded model,
with as many steps as the adapters of rank 16 had and with eight times as many.  Its learning rates are times ½, 1 or 2,
as is best in 200 steps with another seed.  The 600 texts are read five times in 800 steps, so that it is also trained
on as many texts as that takes, of the same digits, none of them twice.

The prediction drawn from the papers is that with eight times the steps its loss on test texts stays higher.  The
opposite view is that a narrow task can be learned from its own texts.  Differences are of losses on the same test
texts, seed by seed.
"""

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from flax import nnx
from jaxtyping import Array

import duat_jax as duat
from duat_jax.models.transformer import Transformer
from experiments.lora.tuning import (
    BATCH,
    METHODS,
    TRAINED,
    Task,
    fit,
    kept_runs,
    largest,
    text_accuracies,
    text_losses,
    train_along,
)
from experiments.markdown import table
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table, rows_of
from experiments.verdict import above, below, every
from training.train import optimizer

SEEDS, FACTORS, TUNED = (1, 2, 3), (0.5, 1.0, 2.0), 200
"""Seeds, factors of the embedded model's learning rates, and the steps by which they are chosen."""
LENGTHS = 100, 800
"""Steps of a training from random weights; adapters have the first number."""
ONCE, FRESH = "largest of three", "largest of three, fresh texts"
"""The task as adapters had it, and with so many training texts, of the same digits, that none is read twice."""
ADAPTED, FULL, SCRATCH = "rank 16", "full, all parameters", "from random weights"
MORE = "more than with adapters"


@cache
def task_of(name: str) -> Task:
    """Return the texts of a task."""
    return largest(duat.load_tokenizer(), LENGTHS[-1] * BATCH - TRAINED if name == FRESH else 0)


def adapted() -> list[Row]:
    """Return the loss and the right answers of the embedded model, as it is and with adapters of every seed."""
    base, runs = kept_runs(ONCE, ADAPTED)
    return rows_of_runs("the embedded model as it is", 0, [base]) + rows_of_runs(
        f"the same with adapters, {ADAPTED}", LENGTHS[0], runs
    )


def rows_of_runs(trained: str, steps: int, runs: list[Row]) -> list[Row]:
    """Return the mean loss and the share of right answers of every run."""
    about: Row = {"trained": trained, "steps": steps}
    return [
        about | {"seed": of.get("seed", 0), "loss": np.mean(of["loss"]), "right": np.mean(of["accuracy"])}
        for of in runs
    ]


def with_full(adapted: pd.DataFrame) -> pd.DataFrame:
    """Return the adapted models with those of which `lora_why` fine-tuned all parameters in as many steps."""
    full = rows_of_runs(f"the same, {FULL}", LENGTHS[0], kept_runs(ONCE, FULL)[1])
    return pd.concat([adapted, pd.DataFrame(full)])


def times(frames: Frames) -> list[str]:
    """Return the processor time of a step, and of all steps as a multiple of that of the adapters'."""
    of = frames["seconds"].set_index("trained").seconds
    rows = [
        [way, str(steps), f"{1000 * of[way]:.0f}", f"{steps * of[way] / (LENGTHS[0] * of[ADAPTED]):.1f}"]
        for way, steps in ((ADAPTED, LENGTHS[0]), *((SCRATCH, steps) for steps in LENGTHS))
    ]
    return table(["trained", "steps", "milliseconds a step", "all steps, times the adapters'"], rows)


@jax.jit
def _train(model: Transformer, ids: Array, counted: Array, factor: Array) -> Transformer:
    def loss(model: Transformer, texts: Array) -> Array:
        return text_losses(model, texts, counted).mean()

    rule = optax.chain(optimizer(len(ids)), optax.scale(factor))
    return fit(loss, model, rule.init(model), ids, rule)[0]


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


def trial(name: str, factor: float) -> Row:
    """Return the losses on validation texts after few steps."""
    return losses(from_scratch(name, factor, 0, TUNED), name, task_of(name).validation)


def measured(name: str, factor: float, seed: int, steps: int, adapted: float) -> Row:
    """Return the losses on test texts, and on some that were trained on."""
    task, model = task_of(name), from_scratch(name, factor, seed, steps)
    found = losses(model, name, task.test)
    on_trained = losses(model, name, task.train[: len(task.test)])["loss"]
    return {**found, "loss on trained texts": on_trained, MORE: found["loss"] - adapted}


def seconds() -> list[Row]:
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
    ways = {ADAPTED: adapters, SCRATCH: everything}
    return [
        {"trained": way, "seconds": (spent(run, many) - spent(run, few)) / (many - few)} for way, run in ways.items()
    ]


def measure() -> Measurements:
    """Yield the adapted model, trials of rates, and trainings."""
    with_adapters = yield Piece("adapted", {}, adapted)
    of_seed = {row["seed"]: row["loss"] for row in with_adapters}
    for name in (ONCE, FRESH):
        trials = {}
        for factor in FACTORS:
            (row,) = yield Piece("trials", {"task": name, "factor": factor}, partial(trial, name, factor))
            trials[factor] = row["loss"]
        factor = min(trials, key=trials.__getitem__)
        for steps in LENGTHS[-1:] if name == FRESH else LENGTHS:
            for seed in SEEDS:
                keys: dict[str, str | int] = {"task": name, "trained": SCRATCH, "steps": steps}
                compute = partial(measured, name, factor, seed, steps, of_seed[seed])
                yield Piece("scratch", keys | {"seed": seed}, compute)
    yield Piece("seconds", {}, seconds)


def more(name: str, steps: int) -> Measure:
    """Return by how much the loss is higher than with adapters, seed by seed."""
    said = f"{MORE}, {name}, {steps} steps"
    return Measure(said, lambda frames: rows_of(frames["scratch"], task=name, steps=steps)[MORE], 3, "+")


LONG = more(ONCE, LENGTHS[1]), more(FRESH, LENGTHS[1])

STUDY = Study(
    protocol=__doc__,
    page="lora",
    claim="training from scratch doesn't reach what an adapted model does (our reading of Section 4.4)",
    unit="seeds of a training",
    stated="before the run",
    predictions=(
        Prediction(
            "with eight times the steps the loss of a model from random weights is higher than with adapters",
            "confirmed if the difference is above zero on the same texts and on fresh ones, refuted if below on both",
            LONG,
            every(above),
        ),
        Prediction(
            "the opposite view: it reaches the adapted model's loss",
            "confirmed if the difference is below zero on the same texts and on fresh ones, refuted if above on both",
            LONG,
            every(below),
        ),
        Prediction(
            "with as many steps as the adapters had it is higher",
            "confirmed if the difference is above zero, refuted if below",
            (more(ONCE, LENGTHS[0]),),
            above,
        ),
    ),
    control=more(ONCE, LENGTHS[0]),
    headline="On the task *largest of three*, the loss of a network trained from random weights minus the adapted"
    " model's is {outcome} nats after eight times the steps, in {Processor time / from random weights, 800 / all"
    " steps, times the adapters'} times the processor time, and {control} after as many steps ({n} seeds).",
    against="In as many steps the adapted loss isn't reached. Nor do adapters, which stop there, reach what"
    " fine-tuning of all parameters does in as many: {The adapted model / the same with adapters, rank 16 / loss /"
    " value} against {The adapted model / the same, full, all parameters / loss / value}.",
    limits="One narrow task and one small model. Longer trainings may better the adapters, too.",
    tables={
        "The adapted model": Table(
            "adapted",
            ("trained", "steps"),
            {"loss": Cell("loss"), "right, %": Cell("right", 1, scale=100)},
            prepare=with_full,
        ),
        "Trained from random weights": Table(
            "scratch",
            ("task", "steps"),
            {
                "loss": Cell("loss"),
                MORE: Cell(MORE, 3, "+"),
                "loss on trained texts": Cell("loss on trained texts"),
                "right, %": Cell("right", 1, scale=100),
            },
        ),
        "Processor time": times,
    },
    measure=measure,
    settings={"seeds": SEEDS, "factors": FACTORS, "tuned": TUNED, "lengths": LENGTHS, "batch": BATCH},
)
