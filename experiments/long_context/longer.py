"""Networks that are trained on short texts and fine-tuned to longer ones, as LongLoRA does, and what a step costs."""

from dataclasses import replace
from functools import cache, partial
from statistics import median
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from duat_jax.evaluation.journal import Journal
from duat_jax.evaluation.running_text import windows
from duat_jax.models.transformer import Transformer
from experiments.long_context import extension
from experiments.long_context.choice import SEEDS, at_the_edge, best, sizes_of
from experiments.long_context.measures import Found, by_position, rounded
from experiments.long_context.networks import FULL, interpolated, losses_of, network, train
from experiments.long_context.tasks import HELD_OUT, TRAINING, held_out_texts, trained_stream, training_texts
from experiments.long_context.trained_verdicts import INTERPOLATED, NOT_TUNED, SHORT_TEXTS

SHORT, LONG, GROUP = 128, 512, 128
"""Tokens that a network is first trained on and then fine-tuned to, and those of a group."""
TUNING, TUNED_BATCH = 100, 4
"""Steps of a fine-tuning, and texts of a step."""
TUNED_RATES = {False: (3e-4, 1e-3, 3e-3), True: (1e-3, 3e-3, 1e-2)}
"""Learning rates of a fine-tuning that are tried: of all weights, and of adapters."""
COST_LENGTHS, COST_TOKENS = (128, 512, 2048), 2048
"""Lengths at which a step of training is timed, of as many tokens at each."""
TUNINGS = {
    f"{way}, {'adapters' if adapters else 'all weights'}": (way, adapters, LONG)
    for adapters in TUNED_RATES
    for way in extension.WAYS
} | {SHORT_TEXTS: (extension.FULL, False, SHORT)}
"""Of each fine-tuning what tokens see, whether adapters are trained, and the length of its texts."""
SETTINGS = [SHORT, LONG, GROUP, TUNING, TUNED_BATCH, list(TUNED_RATES.values())]


@cache
def base(seed: int, steps: int) -> Transformer:
    """Return a network with full attention that is trained on short texts."""
    training = TRAINING._replace(tokens=SHORT, batch=TRAINING.batch * TRAINING.tokens // SHORT)
    # The longest text is a matter of the configuration alone: rotary positions have no parameters.
    model = network(replace(sizes_of(FULL), tokens=LONG), nnx.Rngs(seed))
    return train(model, jnp.asarray(training_texts(training, steps, seed)), jnp.asarray(1.0))[0]


def extended(
    way: str, adapters: bool, rate: float, seed: int, steps: int, tokens: int = LONG, drawn: int | None = None
) -> Transformer:
    """Return a network that is fine-tuned to longer texts."""
    drawn = tokens if drawn is None else drawn
    texts = windows(trained_stream(), TUNING * TUNED_BATCH * LONG // drawn, drawn, seed=seed + 100)
    ids = texts.reshape(TUNING, -1, tokens)
    model = interpolated(base(seed, steps), LONG / SHORT)
    return extension.fine_tune(model, jnp.asarray(ids), jnp.asarray(rate), way=way, group=GROUP, adapters=adapters)


def late(losses: np.ndarray) -> np.ndarray:
    """Return the mean loss of each text's bytes beyond the length that a network was first trained on."""
    return losses[:, SHORT - 1 :].mean(1)


def long_losses(model: Transformer) -> Found:
    """Return the losses of a network on long texts, with full attention, by position and by text."""
    losses = losses_of(model, held_out_texts(LONG, HELD_OUT)[1])
    return {"positions": rounded(by_position(losses)), "late": rounded(late(losses))}


def costs(way: str, tokens: int) -> Found:
    """Return the median seconds of three training steps, and the memory that the program takes beside weights."""
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


def tuned(seed: int, steps: int, way: str, adapters: bool, tokens: int, rate: float, drawn: int | None = None) -> Found:
    """Return the losses on long texts after a fine-tuning."""
    return long_losses(extended(way, adapters, rate, seed, steps, tokens, drawn))


def try_rate(steps: int, way: str, adapters: bool, tokens: int, rate: float) -> float:
    """Return the loss by which the learning rate of a fine-tuning is chosen."""
    model = extended(way, adapters, rate, SEEDS[0], steps, tokens)
    return rounded(late(losses_of(model, held_out_texts(LONG, 0)[0])).mean())


def compare_extensions(journal: Journal, steps: int) -> Found:
    """Return what is measured on long texts, with full attention, after each way of fine-tuning."""

    def not_tuned(seed: int, factor: float) -> Found:
        return long_losses(interpolated(base(seed, steps), factor))

    found: Found = {
        name: {"rate": None, "at the edge": False, "seeds": []} for name in (NOT_TUNED, INTERPOLATED, *TUNINGS)
    }
    for name, settings in TUNINGS.items():
        trials = {
            rate: journal.once(f"longer, {name}, rate {rate}", partial(try_rate, steps, *settings, rate))
            for rate in TUNED_RATES[settings[1]]
        }
        found[name] |= {"rate": best(trials), "at the edge": at_the_edge(trials), "trials": list(trials.items())}
    for seed in SEEDS:
        computes = {
            NOT_TUNED: partial(not_tuned, seed, 1.0),
            INTERPOLATED: partial(not_tuned, seed, LONG / SHORT),
            **{name: partial(tuned, seed, steps, *settings, found[name]["rate"]) for name, settings in TUNINGS.items()},
        }
        for name, compute in computes.items():
            found[name]["seeds"].append(journal.once(f"longer, {name}, seed {seed}", compute))
    return found
