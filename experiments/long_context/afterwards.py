"""Further learning rates, equal texts and reading in groups, asked once the results of trained networks were seen."""

from collections.abc import Callable
from functools import partial
from typing import Any

from duat_jax.evaluation.journal import Journal
from experiments.long_context import extension
from experiments.long_context.choice import SEEDS, at_the_edge, best
from experiments.long_context.longer import GROUP, LONG, SHORT, TUNINGS, base, long_losses, try_rate, tuned
from experiments.long_context.measures import Found
from experiments.long_context.networks import PATTERN, TOKENS, WINDOW

KINDS = TOKENS, PATTERN, WINDOW
"""The networks beside full attention on which a verdict rests."""
RATES = 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1
"""The learning rates of fine-tuning from which further ones are taken."""
IN_GROUPS = "not fine-tuned, read in groups of 128"
SAME_TEXTS = "the same texts in pieces of 128, all weights"


def widened(
    trials: dict[float, float], beyond: Callable[[float, bool], float], run: Callable[[float], float]
) -> dict[float, float]:
    """Return trials with further learning rates, until the best one has others on both sides.

    Example:
        >>> widened({1.0: 3.0, 2.0: 2.0}, lambda rate, up: rate * 2 if up else rate / 2, lambda rate: abs(rate - 5))
        {1.0: 3.0, 2.0: 2.0, 4.0: 1.0, 8.0: 3.0}
    """
    trials = dict(trials)
    while at_the_edge(trials):
        rate = best(trials)
        rate = beyond(rate, rate == max(trials))
        trials[rate] = run(rate)
    return trials


def compare_kinds(
    journal: Journal,
    kinds: Found,
    steps: int,
    trial: Callable[[str, float, int], float],
    measured: Callable[[str, float, int, int], Found],
) -> Found:
    """Return what is measured on networks at the best of further learning rates."""

    def doubled(rate: float, up: bool) -> float:
        return rate * 2 if up else rate / 2

    def run(kind: str, rate: float) -> float:
        return journal.once(f"{kind}, rate {rate}", partial(trial, kind, rate, steps))

    found: Found = {}
    for kind in KINDS:
        trials = widened(dict(kinds[kind]["trials"]), doubled, partial(run, kind))
        rate, seeds = best(trials), kinds[kind]["seeds"]
        if rate != kinds[kind]["rate"]:
            seeds = [
                journal.once(f"{kind}, rate {rate}, seed {seed}", partial(measured, kind, rate, seed, steps))
                for seed in SEEDS
            ]
        found[kind] = {"rate": rate, "trials": list(trials.items()), "seeds": seeds}
    return found


def compare_tuning(journal: Journal, steps: int, ways: Found) -> Found:
    """Return what is measured after fine-tuning at the best of further rates, on equal texts, and without any."""

    def beyond(rate: float, up: bool) -> float:
        return RATES[RATES.index(rate) + (1 if up else -1)]

    def once(name: str, compute: Callable[[], Any]) -> Any:
        return journal.once(f"longer, {name}", compute)

    def run(name: str, rate: float) -> float:
        way, adapters, tokens = TUNINGS[name]
        return once(f"{name}, rate {rate}", partial(try_rate, steps, way, adapters, tokens, rate))

    found: Found = {}
    for name, settings in TUNINGS.items():
        trials = widened(dict(ways[name]["trials"]), beyond, partial(run, name))
        rate, seeds = best(trials), ways[name]["seeds"]
        if rate != ways[name]["rate"]:
            seeds = [
                once(f"{name}, rate {rate}, seed {seed}", partial(tuned, seed, steps, *settings, rate))
                for seed in SEEDS
            ]
        found[name] = {"rate": rate, "trials": list(trials.items()), "seeds": seeds}
    rate = found[f"{extension.GROUPS}, all weights"]["rate"]
    computes: dict[str, Callable[[int], Found]] = {
        SAME_TEXTS: partial(
            tuned, steps=steps, way=extension.FULL, adapters=False, tokens=SHORT, rate=rate, drawn=LONG
        ),
        IN_GROUPS: partial(read_in_groups, steps=steps),
    }
    for name, compute in computes.items():
        found[name] = {
            "rate": rate if name == SAME_TEXTS else None,
            "trials": [],
            "seeds": [once(f"{name}, seed {seed}", partial(compute, seed)) for seed in SEEDS],
        }
    return found


def read_in_groups(seed: int, steps: int) -> Found:
    """Return the losses on long texts of a network that isn't fine-tuned and attends within groups of 128 tokens."""
    return long_losses(extension.WAYS[extension.GROUPS](base(seed, steps), GROUP))
