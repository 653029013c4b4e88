"""Question: which scores of examples forecast the loss after a training without some of them?

Run `python -m experiments retraining`; it writes experiments/results/retraining.json and the tables in
docs/how-to/training-runs.md, which states beforehand what decides.  What is measured is kept in
experiments/results/work as it
is finished: a run that was stopped goes on.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import optax
from jaxtyping import Float
from rich.progress import track

from experiments.kept_results import journal_of, store
from experiments.retraining.methods import EXACT, METHODS, scores_of
from experiments.retraining.networks import (
    BATCH,
    EXAMPLES,
    PERCEPTRON,
    STEPS,
    TARGETS,
    TOKENS,
    TRANSFORMER,
    Optimiser,
    draw_texts,
    make_network,
    path_of,
    retrained,
)
from experiments.retraining.report import FEW, FOLD, HALVES, agreements, fields

__all__ = ["fields", "main"]

SEEDS = range(5, 10)
REMOVED = {HALVES: (200, EXAMPLES // 2), FEW: (FOLD, 6)}
"""The number of subsets of each kind, and of the examples that each leaves out."""
LARGE = 1e3
"""The largest size of losses and scores; it stands for the loss of a training that ended without a finite one."""
DIGITS = 6


class Group(NamedTuple):
    """Trainings that differ in their learning rate.

    Args:
        network: the kind of network.
        optimiser: the optimiser of a rate.
        rates: the rates.
    """

    network: str
    optimiser: Optimiser
    rates: tuple[float, ...]


_momentum, _adam = partial(optax.sgd, momentum=0.9), partial(optax.adam, eps_root=1e-12)
GROUPS = {
    "Transformer, gradient descent": Group(TRANSFORMER, optax.sgd, (0.03, 0.1, 0.3)),
    "Transformer, momentum": Group(TRANSFORMER, _momentum, (0.01, 0.03, 0.1)),
    "Transformer, Adam": Group(TRANSFORMER, _adam, (0.001, 0.003, 0.01)),
    "perceptron, gradient descent": Group(PERCEPTRON, optax.sgd, (0.3, 1.0, 3.0)),
    "perceptron, Adam": Group(PERCEPTRON, _adam, (0.001, 0.003, 0.01)),
}


def subsets(kind: str, seed: int) -> Float[np.ndarray, "subsets examples"]:
    """Return subsets of the examples: one where an example is kept."""
    count, removed = REMOVED[kind]
    draw = np.random.default_rng([seed, removed])
    kept = np.ones((count, EXAMPLES))
    for row in kept:
        row[draw.choice(EXAMPLES, removed, replace=False)] = 0
    return kept


def measure(name: str, rate: float, seed: int) -> dict[str, Any]:
    """Return the agreement of every method with retraining in one training, and what the page says of the training."""
    group = GROUPS[name]
    net, texts, optimiser = make_network(group.network, seed), draw_texts(seed), group.optimiser
    path = path_of(net, texts, optimiser, rate)
    before, after = (np.asarray(net.losses(path.weights[end], texts.targets)) for end in (0, -1))
    scores = {method: scores_of(net, texts, path, optimiser, rate, method) for method in METHODS}
    for method, of in scores.items():
        if method.startswith(EXACT) and not np.allclose(of.sum(1), after - before, atol=1e-3 + 1e-4 * np.abs(of).sum()):
            raise AssertionError(f"{method}: parts sum to {of.sum(1)} where the losses change by {after - before}")
    kept = {kind: subsets(kind, seed) for kind in REMOVED}
    (again,) = retrained(net, texts, optimiser, rate, np.ones((1, EXAMPLES)))
    measured = {
        "losses": finite(path.losses),
        "before": finite(before),
        "after": finite(after),
        "again": finite(again),
        "scores": {method: finite(of, nan=0.0) for method, of in scores.items()},
        "without": {kind: finite(retrained(net, texts, optimiser, rate, of)) for kind, of in kept.items()},
    }
    return summary(name, rate, seed, measured, kept)


def finite(values: Any, nan: float = LARGE) -> list[Any]:
    """Return numbers with six digits, none of them larger than `LARGE`."""
    numbers = np.nan_to_num(np.asarray(values, np.float64), nan=nan, posinf=LARGE, neginf=-LARGE)
    found: list[Any] = np.round(np.clip(numbers, -LARGE, LARGE), DIGITS).tolist()
    return found


def summary(name: str, rate: float, seed: int, measured: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a training."""
    losses = measured["losses"]
    return {
        "group": name,
        "rate": rate,
        "seed": seed,
        "losses": [losses[0], max(losses), losses[-1]],
        "largest rate": rate == max(GROUPS[name].rates),
        "targets": [float(np.mean(measured[when])) for when in ("before", "after")],
        "floor": float(np.abs(np.subtract(measured["again"], measured["after"])).max()),
        "moved": float(np.abs(np.subtract(measured["without"][FEW], measured["again"])).mean()),
        "agreements": agreements(measured, kept),
    }


def pieces() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield the measurements, all groups of one seed before the next seed."""
    for seed in SEEDS:
        for name, group in GROUPS.items():
            for rate in group.rates:
                yield f"{name}, {rate}, seed {seed}", partial(measure, name, rate, seed)


def main() -> None:
    """Run what isn't measured yet, and store the results."""
    sizes = [TOKENS, EXAMPLES, BATCH, STEPS, TARGETS]
    asked = {"methods": list(METHODS), "removed": REMOVED, "seeds": list(SEEDS), "sizes": sizes}
    journal = journal_of("retraining", {"asked": asked})
    found = {name: journal.once(name, compute) for name, compute in track(list(pieces()), "Trainings")}
    results = {"asked": asked, "groups": list(GROUPS), "pieces": found}
    store("retraining", results)
