"""Claim: language models are "confined to function fitting based on the majority of corpora" (version 001, 4.5).

Of texts; for functions see `python -m experiments generalization`.  Run `python -m experiments generalization_rare`; it
writes experiments/results/generalization_rare.json and the tables of docs/findings/generalization.md, which states
beforehand
what decides.
"""

from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Int

from duat_jax.evaluation.running_text import windows
from duat_jax.evaluation.statistics import students_mean
from experiments.kept_results import journal_of, store
from experiments.long_context.choice import sizes_of
from experiments.long_context.measures import rounded
from experiments.long_context.networks import FULL, losses_of, network, train
from experiments.long_context.tasks import TRAINING, held_out_stream
from experiments.markdown import Fields, cells, table
from experiments.texts import manual
from training.corpus import sources, split, unseen

SEEDS, STEPS, RATE, TESTED = range(3), 1500, 0.5, 224
SHARES = 0.0, 0.01, 0.1, 0.5
"""The shares of training texts that are of the rare kind."""
FEWER = 150
"""The steps in which as many rare texts as in a hundredth are also read, with a tenth as many others."""
BOUND = 0.05
"""The fall of the loss on the rare kind from which on it counts as fitted, in nats a byte."""
ITSELF = "pydoc_data/topics.py"
"""The file of the frequent kind that holds the rare one."""

Results = dict[str, Any]


@cache
def rare_streams() -> tuple[Int[np.ndarray, "trained"], Int[np.ndarray, "tested"]]:
    """Return the bytes of chapters of Python's manual to train on, and of others that share few lines with them."""
    chapters = {str(i): text for i, text in enumerate(dict.fromkeys(manual()))}
    trained = {name: text for name, text in chapters.items() if int(name) % 4}
    tested = unseen(trained, {name: text for name, text in chapters.items() if not int(name) % 4})
    return _bytes(trained), _bytes(tested)


@cache
def frequent_streams() -> tuple[Int[np.ndarray, "trained"], Int[np.ndarray, "tested"]]:
    """Return the bytes of sources to train on, without the file that holds the rare kind, and of others."""
    trained = {name: text for name, text in split(sources())[0].items() if name != ITSELF}
    return _bytes(trained), held_out_stream()


def _bytes(texts: dict[str, str]) -> Int[np.ndarray, "bytes"]:
    return np.frombuffer("".join(texts.values()).encode(), np.uint8).astype(np.int32)


def texts_of(share: float, steps: int, seed: int) -> Int[np.ndarray, "steps batch tokens"]:
    """Return the texts of every step, of which a share is of the rare kind, at random places."""
    number = steps * TRAINING.batch
    texts = windows(frequent_streams()[0], number, TRAINING.tokens, seed=seed)
    places = np.random.default_rng(seed).permutation(number)[: round(share * number)]
    texts[places] = rare_texts(len(places), seed)
    return texts.reshape(steps, TRAINING.batch, -1)


def rare_texts(number: int, seed: int) -> Int[np.ndarray, "number tokens"]:
    """Return texts of the rare kind, in passes over all of them."""
    once = windows(rare_streams()[0], None, TRAINING.tokens, seed=seed)
    return np.resize(once, (number, once.shape[1])) if number else once[:0]


def measured(share: float, steps: int, seed: int) -> dict[str, float]:
    """Return the losses of a trained network: on the rare kind and on the frequent one."""
    model = train(
        network(sizes_of(FULL), nnx.Rngs(seed)), jnp.asarray(texts_of(share, steps, seed)), jnp.asarray(RATE)
    )[0]
    tested = {"rare": rare_streams()[1], "frequent": frequent_streams()[1]}
    return {
        kind: rounded(losses_of(model, windows(stream, TESTED, TRAINING.tokens, seed=0)).mean())
        for kind, stream in tested.items()
    }


def gain(results: Results, share: float, steps: int) -> np.ndarray:
    """Return by how much rare texts lower the loss on their kind, for every seed."""
    none, some = (np.array([seed["rare"] for seed in results["trained"][name(of, steps)]]) for of in (SHARES[0], share))
    lower: np.ndarray = none - some
    return lower


def name(share: float, steps: int) -> str:
    """Return the name of a training."""
    return f"{share:.0%}, {steps} steps"


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page."""
    rows = []
    half = gain(results, SHARES[-1], STEPS)
    for share, steps in trainings():
        seeds = results["trained"][name(share, steps)]
        losses = [students_mean(np.array([seed[kind] for seed in seeds])).written() for kind in ("rare", "frequent")]
        row = [f"{share:.0%}", str(steps), f"{round(share * steps * TRAINING.batch):,}", *losses]
        if share == SHARES[0]:
            rows.append([*row, "", "", ""])
            continue
        lower = students_mean(gain(results, share, steps))
        verdict = "not confined" if lower.low > BOUND else "confined" if lower.high < BOUND else "open"
        part = students_mean(gain(results, share, steps) / half).written(2) if steps == STEPS else ""
        rows.append([*row, lower.written(sign="+"), part, verdict])
    head = ["rare texts", "steps", "number of them", "loss, rare kind", "loss, frequent kind"]
    head += ["gain on the rare kind", "part of the gain by a half", "verdict"]
    text = "\n".join(["### Losses by the share of rare texts", "", *table(head, rows)])
    return {"tables": text, **cells(text)}


def trainings() -> list[tuple[float, int]]:
    """Return the share of rare texts and the number of steps of every training."""
    # As many rare texts in a tenth of the steps are ten times the share.
    return [*((share, STEPS) for share in SHARES), (SHARES[0], FEWER), (SHARES[1] * STEPS / FEWER, FEWER)]


def main() -> None:
    """Train the networks, and store the results."""
    settings = {"seeds": len(SEEDS), "rate": RATE, "tested": TESTED, "trainings": trainings()}
    journal = journal_of("generalization_rare", settings)
    trained: Results = {name(*of): [] for of in trainings()}
    for seed in SEEDS:
        for of in trainings():
            once = partial(measured, *of, seed)
            trained[name(*of)].append(journal.once(f"{name(*of)}, seed {seed}", once))
    store("generalization_rare", {"settings": settings, "trained": trained})
