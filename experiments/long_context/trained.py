"""Claim: attention reads the context as a whole, and a 1D convolution in fragments (Wang & Li, Section 4.1, Figure 5).

Beside it stands LongLoRA, which `001` names as a way to long texts.  Run `make long_context_trained`; it writes
experiments/results/long_context_trained.json and the tables in docs/long-context.md, which states beforehand what
decides.  What is measured is kept in experiments/results/work as it is finished: a run that was stopped goes on.
"""

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from duat_jax.cli.compiled import keep_compiled
from duat_jax.evaluation.journal import Journal
from duat_jax.evaluation.running_text import windows
from duat_jax.models.transformer import Transformer
from experiments.approximation.selection import matched
from experiments.environment import environment
from experiments.long_context import extension
from experiments.long_context.measures import Found, by_position, measure, rounded
from experiments.long_context.networks import FULL, KINDS, Sizes, count, losses_of, network, train
from experiments.long_context.tasks import BYTES, TRAINING, held_out_texts, trained_stream, training_texts
from experiments.long_context.trained_report import tables
from experiments.pages import Fields, cells, write_pages

RESULTS, WORK = Path("experiments/results/long_context_trained.json"), Path("experiments/results/work")
SEEDS, TRIAL_SEED = (0, 1, 2), 3
STEPS = 3000, 6000
"""Steps of a training: the first number with which full attention recalls a word, or the last one."""
RATES = 0.5, 1.0, 2.0
"""Factors of the embedded model's learning rates that are tried."""
SHORT, LONG, GROUP = 128, 512, 128
"""Tokens that a network is first trained on and then fine-tuned to, and those of a group."""
TUNING, TUNED_BATCH = 100, 4
"""Steps of a fine-tuning, and texts of a step."""
TUNED_RATES = {False: (3e-4, 1e-3, 3e-3), True: (1e-3, 3e-3, 1e-2)}
"""Learning rates of a fine-tuning that are tried: of all weights, and of adapters."""
NOT_TUNED, TUNED_SHORT = "not fine-tuned", "texts of 128 tokens, all weights"
COST_LENGTHS, COST_TOKENS = (128, 512, 2048), 2048
"""Lengths at which a step of training is timed, of as many tokens at each."""


def sizes_of(kind: str) -> Sizes:
    """Return the sizes of a network with as many parameters as the one with full attention.

    Args:
        kind: a name in `KINDS`.
    """
    full = Sizes(
        kind=FULL,
        layers=TRAINING.layers,
        features=TRAINING.features,
        neurons=TRAINING.neurons,
        tokens=TRAINING.tokens,
        vocab=BYTES,
    )
    return matched(replace(full, kind=kind), count(full), count)


def trained(kind: str, rate: float, seed: int, steps: int) -> Transformer:
    """Return a trained network.

    Args:
        kind: a name in `KINDS`.
        rate: the factor of the learning rates.
        seed: the seed of its first weights and of what it reads.
        steps: the steps of its training.
    """
    model = network(sizes_of(kind), nnx.Rngs(seed))
    return train(model, jnp.asarray(training_texts(TRAINING, steps, seed)), jnp.asarray(rate))[0]


def trial(kind: str, rate: float, steps: int) -> float:
    """Return the validation loss of a network that is trained with a rate, in a quarter of the steps.

    Args:
        kind: a name in `KINDS`.
        rate: the factor of the learning rates.
        steps: the steps of a whole training.
    """
    model = trained(kind, rate, TRIAL_SEED, steps // 4)
    return rounded(losses_of(model, held_out_texts(TRAINING.tokens)[0]).mean())


def measured(kind: str, rate: float, seed: int, steps: int) -> Found:
    """Return what is measured on a trained network.

    Args:
        kind: a name in `KINDS`.
        rate: the factor of the learning rates.
        seed: the network's seed.
        steps: the steps of its training.
    """
    return measure(trained(kind, rate, seed, steps))


def untrained(kind: str) -> Found:
    """Return what is measured on a network before its training, and the number of its parameters.

    Args:
        kind: a name in `KINDS`.
    """
    sizes = sizes_of(kind)
    return {"parameters": count(sizes), "neurons": sizes.neurons, **measure(network(sizes, nnx.Rngs(0)))}


@cache
def base(seed: int, steps: int) -> Transformer:
    """Return a network with full attention that is trained on short texts.

    Args:
        seed: its seed.
        steps: the steps of its training.
    """
    training = TRAINING._replace(tokens=SHORT, batch=TRAINING.batch * TRAINING.tokens // SHORT)
    # The longest text is a matter of the configuration alone: rotary positions have no parameters.
    model = network(replace(sizes_of(FULL), tokens=LONG), nnx.Rngs(seed))
    return train(model, jnp.asarray(training_texts(training, steps, seed)), jnp.asarray(1.0))[0]


def extended(way: str, adapters: bool, rate: float, seed: int, steps: int, tokens: int = LONG) -> Transformer:
    """Return a network that is fine-tuned to longer texts.

    Args:
        way: a name in `extension.WAYS`.
        adapters: whether adapters, embeddings and norms are trained, and not all weights.
        rate: the highest learning rate.
        seed: the seed of the network; what it reads in fine-tuning is drawn by another one.
        steps: the steps of its first training.
        tokens: the length of the texts of fine-tuning.
    """
    training = TRAINING._replace(tokens=tokens, batch=TUNED_BATCH * LONG // tokens)
    ids = training_texts(training, TUNING, seed + 100)
    return extension.fine_tune(
        base(seed, steps), jnp.asarray(ids), jnp.asarray(rate), way=way, group=GROUP, adapters=adapters
    )


def long_losses(model: Transformer, validation: bool) -> np.ndarray:
    """Return the losses of a network on long texts, with full attention.

    Args:
        model: the network.
        validation: whether the texts are those by which learning rates are chosen.
    """
    return losses_of(model, held_out_texts(LONG)[0 if validation else 1])


def costs(way: str, tokens: int) -> Found:
    """Return the seconds of a training step, the median of three, and the memory that its program takes beside weights.

    Args:
        way: a name in `extension.WAYS`.
        tokens: the length of its texts.
    """
    model = network(replace(sizes_of(FULL), tokens=max(COST_LENGTHS)), nnx.Rngs(0))
    model = extension.WAYS[way](model, GROUP)
    ids = jnp.asarray(windows(trained_stream(), COST_TOKENS // tokens, tokens, seed=0))[None]
    step = train.lower(model, ids, jnp.asarray(1.0)).compile()
    seconds = []
    for _ in range(4):
        began = perf_counter()
        jax.block_until_ready(step(model, ids, jnp.asarray(1.0)))
        seconds.append(perf_counter() - began)
    memory: Any = step.memory_analysis()
    return {"seconds": round(median(seconds[1:]), 4), "megabytes": round(memory.temp_size_in_bytes / 1e6, 1)}


def best(trials: dict[float, float]) -> float:
    """Return the rate of the lowest validation loss.

    Args:
        trials: the validation loss of each rate.
    """
    return min(trials, key=trials.__getitem__)


def enough_steps(journal: Journal) -> int:
    """Return the steps of all trainings: the fewest with which full attention recalls a word at half the loss.

    Args:
        journal: what is finished.
    """
    for steps in STEPS:
        compute = partial(measured, FULL, 1.0, TRIAL_SEED, steps)
        recalled = journal.once(f"{FULL}, {steps} steps", compute)["recall"]
        if recalled["64"] < recalled["64, first copy"] / 2:
            return steps
    return STEPS[-1]


def compare_kinds(journal: Journal, steps: int) -> Found:
    """Return what is measured on networks of all kinds, before and after training.

    Args:
        journal: what is finished.
        steps: the steps of a training.
    """
    found: Found = {}
    for kind in KINDS:
        trials = {rate: journal.once(f"{kind}, rate {rate}", partial(trial, kind, rate, steps)) for rate in RATES}
        found[kind] = {
            "untrained": journal.once(f"{kind}, untrained", partial(untrained, kind)),
            "trials": list(trials.items()),
            "rate": best(trials),
            "seeds": [],
        }
    for seed in SEEDS:
        for kind, of_kind in found.items():
            compute = partial(measured, kind, of_kind["rate"], seed, steps)
            of_kind["seeds"].append(journal.once(f"{kind}, seed {seed}", compute))
    return found


def compare_extensions(journal: Journal, steps: int) -> Found:
    """Return the losses by position on long texts, with full attention, after each way of fine-tuning.

    Args:
        journal: what is finished.
        steps: the steps of the first training.
    """

    def losses(seed: int, way: str, adapters: bool, rate: float, tokens: int = LONG) -> list[float]:
        return rounded(by_position(long_losses(extended(way, adapters, rate, seed, steps, tokens), validation=False)))

    def positions(seed: int) -> list[float]:
        return rounded(by_position(long_losses(base(seed, steps), validation=False)))

    def try_rate(way: str, adapters: bool, rate: float) -> float:
        return rounded(long_losses(extended(way, adapters, rate, SEEDS[0], steps), validation=True).mean())

    found: Found = {NOT_TUNED: [], TUNED_SHORT: []}
    rates = {}
    for adapters, of_kind in TUNED_RATES.items():
        for way in extension.WAYS:
            name = f"{way}, {'adapters' if adapters else 'all weights'}"
            trials = {
                rate: journal.once(f"longer, {name}, rate {rate}", partial(try_rate, way, adapters, rate))
                for rate in of_kind
            }
            rates[name] = way, adapters, best(trials)
            found[name] = []
    for seed in SEEDS:
        found[NOT_TUNED].append(journal.once(f"longer, {NOT_TUNED}, seed {seed}", partial(positions, seed)))
        for name, (way, adapters, rate) in rates.items():
            compute = partial(losses, seed, way, adapters, rate)
            found[name].append(journal.once(f"longer, {name}, seed {seed}", compute))
        short = partial(losses, seed, extension.FULL, False, rates[f"{extension.FULL}, all weights"][2], SHORT)
        found[TUNED_SHORT].append(journal.once(f"longer, {TUNED_SHORT}, seed {seed}", short))
    return found


def fields(results: Found) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: what was kept.
    """
    text = tables(results)
    return {"tables": text, **cells(text)}


def main() -> None:
    """Run what isn't measured yet, store the results, and write the page."""
    keep_compiled()
    WORK.mkdir(parents=True, exist_ok=True)
    work = {
        "training": TRAINING._asdict(),
        "steps": STEPS,
        "rates": RATES,
        "longer": [SHORT, LONG, GROUP, TUNING, TUNED_BATCH, list(TUNED_RATES.values())],
    }
    journal = Journal(WORK / "long_context_trained.jsonl", work)
    steps = enough_steps(journal)
    results = {
        "environment": environment(),
        "work": work | {"steps": steps},
        "costs": {
            f"{way}, {tokens}": journal.once(f"costs, {way}, {tokens}", partial(costs, way, tokens))
            for way in extension.WAYS
            for tokens in COST_LENGTHS
        },
        "kinds": compare_kinds(journal, steps),
        "longer": compare_extensions(journal, steps),
    }
    RESULTS.write_text(json.dumps(results, allow_nan=False) + "\n", encoding="utf-8")
    write_pages()


if __name__ == "__main__":
    main()
