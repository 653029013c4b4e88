"""Plans of trainings: the networks of every task and size, the choice of their rates, and what is measured on them."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array
from rich.progress import track

from duat_jax.evaluation.journal import Journal
from experiments.approximation.selection import matched
from experiments.generalization.measures import TESTED, dissect, measure
from experiments.generalization.networks import KINDS, WHOLE, Network, Sizes, count
from experiments.generalization.tasks import Demonstrated, Named, Task
from experiments.generalization.training import Budget, each, error, outputs, train

LAYERS, SEEDS, BATCH = 2, 5, 64
NORMS = False, True


class Study(NamedTuple):
    """A task, and the widths of the Transformers on it, which other networks are as large as.

    Args:
        task: the task.
        widths: of the residual stream; the middle one is that of tuning.
        steps: of training; tuning has half of them.
    """

    task: Task
    widths: tuple[int, ...] = (32,)
    steps: int = 4000

    def budget(self, times: float = 1.0) -> Budget:
        """Return the training of every network."""
        return Budget(int(times * self.steps), BATCH)


class Plan(NamedTuple):
    """Studies of networks that are tuned, trained and measured alike.

    Args:
        studies: by their names.
        rates: the learning rates of the tuning.
        whole: whether the largest networks are also taken apart.
    """

    studies: Mapping[str, Study]
    rates: tuple[float, ...]
    whole: bool


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


def trained(task: Task, sizes: Sizes, budget: Budget, rate: float, seeds: int, whole: bool) -> dict[str, Any]:
    """Return the measurements of networks of several seeds."""
    key = jax.random.key(SEEDS + 2)
    measured = [
        measure(task, network, sizes, key)
        | (dissect(task, network, key) if whole and isinstance(task, Named | Demonstrated) else {})
        for network in of_seeds(task, sizes, budget, rate, seeds)
    ]
    return {"sizes": asdict(sizes), "parameters": count(sizes, task), "rate": rate, "seeds": measured}


Unit = tuple[str, Callable[..., dict[str, Any]], tuple[Any, ...]]
"""A name in the journal, and what trains networks, which one program trains for all rates or seeds."""


def tuning(plan: Plan, names: Iterable[str]) -> Iterator[Unit]:
    """Yield the networks that are trained for choosing rates and norms."""
    for name in names:
        study = plan.studies[name]
        for kind in KINDS:
            for norms in norms_of(kind):
                sizes = sizes_of(study.task, kind, study.widths[len(study.widths) // 2], norms)
                yield f"{name}; {kind}; {norms}", tune, (study.task, sizes, study.budget(0.5), plan.rates)


def chosen(rates: tuple[float, ...], tuned: dict[str, dict[str, Any]], name: str, kind: str) -> tuple[bool, float]:
    """Return the norms and the rate with the smallest error in tuning."""
    choices = [(norms, rate) for norms in norms_of(kind) for rate in rates]
    return min(choices, key=lambda choice: tuned[f"{name}; {kind}; {choice[0]}"][str(choice[1])])


def networks(plan: Plan, tuned: dict[str, dict[str, Any]], names: Iterable[str]) -> Iterator[Unit]:
    """Yield the networks that are measured."""
    for name in names:
        task, widths, _ = study = plan.studies[name]
        for kind in KINDS:
            norms, rate = chosen(plan.rates, tuned, name, kind)
            for width in widths:
                whole = plan.whole and width == widths[-1]
                given = task, sizes_of(task, kind, width, norms), study.budget(), rate, SEEDS, whole
                yield f"{name}; {kind}; {width}", trained, given


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
