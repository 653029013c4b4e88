"""Trainings that studies share: sizes of networks, the choice of rates and norms, and networks of several seeds."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array
from rich.progress import track

from duat_jax.evaluation.journal import Journal
from experiments.approximation.selection import matched
from experiments.generalization.networks import WHOLE, Network, Sizes, count
from experiments.generalization.tasks import Task
from experiments.generalization.training import Budget, each, error, outputs, train

LAYERS, SEEDS, BATCH, TESTED = 2, 5, 64, 4096
"""The number of layers, of seeds, of examples in a step, and of those that errors are taken on."""
NORMS = False, True


def norms_of(kind: str) -> tuple[bool, ...]:
    """Return the choices of norms: a single layer has none."""
    return NORMS[:1] if kind in WHOLE else NORMS


def sizes_of(task: Task, kind: str, width: int, norms: bool) -> Sizes:
    """Return the sizes of a network with as many parameters as the Transformer of a width."""
    transformer = Sizes(kind="transformer", norms=norms, layers=LAYERS, features=width, neurons=4 * width)
    # A perceptron's stream has all tokens in it, and is twice as wide.
    features = 2 * width if kind == "perceptron" else width
    like = replace(transformer, kind=kind, features=features)
    return matched(like, count(transformer, task), partial(count, task=task))


def tune(task: Task, sizes: Sizes, budget: Budget, rates: tuple[float, ...]) -> dict[str, Any]:
    """Return the errors of networks that are trained for choosing the rate and the norms, by rate."""
    examples = task.chosen_by(jax.random.key(SEEDS + 1), TESTED)
    keys = jnp.stack([jax.random.key(SEEDS)] * len(rates))
    networks = each(train(sizes, task, budget, keys, jnp.array(rates)))
    return {str(rate): _known(error(outputs(of, examples), examples)) for rate, of in zip(rates, networks, strict=True)}


def _known(error: Array) -> float:
    # A network that has diverged is the worst, and JSON has no infinity.
    return float(jnp.nan_to_num(error, nan=1e9, posinf=1e9))


def of_seeds(task: Task, sizes: Sizes, budget: Budget, rate: float, seeds: int) -> Iterator[Network]:
    """Yield trained networks of several seeds; one that has diverged has zeros for what isn't finite."""
    keys = jnp.stack([jax.random.key(seed) for seed in range(seeds)])
    networks = train(sizes, task, budget, keys, jnp.full(seeds, rate))
    yield from each(jax.tree.map(lambda leaf: jnp.nan_to_num(leaf, posinf=0.0, neginf=0.0), networks))


Unit = tuple[str, Callable[..., dict[str, Any]], tuple[Any, ...]]
"""A name in the journal, and what trains networks, which one program trains for all rates or seeds."""


def _on_one_core() -> None:
    """Set up a process in which one core trains networks, which are too small for more, or for a GPU."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    jax.config.update("jax_platforms", "cpu")


def _and_forget(compute: Callable[..., dict[str, Any]], given: tuple[Any, ...]) -> dict[str, Any]:
    """Return what is computed; the programs of many networks don't fit into one process."""
    found = compute(*given)
    jax.clear_caches()
    return found


def run(journal: Journal, units: Iterator[Unit], title: str) -> dict[str, dict[str, Any]]:
    """Train and measure networks, one on every core, and return the results by name."""
    names = []
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), _on_one_core) as pool:
        futures: dict[str, Future[dict[str, Any]]] = {}
        for name, compute, given in units:
            names.append(name)
            if name not in journal:
                futures[name] = pool.submit(_and_forget, compute, given)
        # What is in the journal isn't computed.
        return {
            name: journal.once(name, futures[name].result if name in futures else dict) for name in track(names, title)
        }
