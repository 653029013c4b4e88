"""Trainings of studies: sizes of networks, the choice of their norms and rates, and networks that are measured."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.papers import matched
from experiments.generalization.networks import KINDS, WHOLE, Network, Sizes, count
from experiments.generalization.tasks import Task
from experiments.generalization.training import Budget, each, error, outputs, train
from experiments.study import Piece, Row

LAYERS, SEEDS, BATCH, TESTED = 2, 5, 64, 4096
"""The number of layers, of seeds, of examples in a step, and of those that errors are taken on."""
NORMS = False, True

Measured = Callable[[Any, Sizes, Network], Row]
"""From a task, a network's sizes and the network to its measurements."""


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


class Choice(NamedTuple):
    """The norms and the rate of the smallest error in tuning."""

    norms: bool
    rate: float
    error: float


def _tuned(task: Task, sizes: Sizes, budget: Budget, rates: tuple[float, ...]) -> list[Row]:
    errors = tune(task, sizes, budget, rates).values()
    return [{"rate": rate, "error": error} for rate, error in zip(rates, errors, strict=True)]


def tuning(
    keys: Mapping[str, Any],
    task: Task,
    sizes: Callable[[bool], Sizes],
    norms: Sequence[bool],
    steps: int,
    rates: tuple[float, ...],
) -> list[Piece]:
    """Return the trainings by which the norms and the rate of a network are chosen, with half of the steps.

    Args:
        keys: the keys of the network in the frame.
        task: the task.
        sizes: the network's sizes with norms or without.
        norms: the choices of norms.
        steps: of the training that is measured.
        rates: the choices of the rate.
    """
    budget = Budget(steps // 2, BATCH)
    return [Piece("tuning", {**keys, "norms": of}, partial(_tuned, task, sizes(of), budget, rates)) for of in norms]


def choices(tunings: Sequence[list[Piece]]) -> Generator[list[Piece], Any, list[Choice]]:
    """Yield the trainings of several networks at once, and return the best norms and rate of each network."""
    found = iter((yield [piece for pieces in tunings for piece in pieces]))
    rows = [[row for _ in pieces for row in next(found)] for pieces in tunings]
    best = [min(of, key=lambda row: row["error"]) for of in rows]
    return [Choice(row["norms"], row["rate"], row["error"]) for row in best]


def trained(task: Task, sizes: Sizes, steps: int, rate: float, seeds: int, measured: Measured) -> list[Row]:
    """Return the measurements of trained networks of several seeds."""
    given = {"parameters": count(sizes, task), "norms": sizes.norms, "rate": rate}
    networks = of_seeds(task, sizes, Budget(steps, BATCH), rate, seeds)
    return [{"seed": seed, **given, **measured(task, sizes, network)} for seed, network in enumerate(networks)]


class Functions(NamedTuple):
    """Functions that prompts give, and the networks on them.

    Args:
        task: the task.
        widths: of the Transformers that other networks are as large as; the middle one is that of tuning.
        steps: of training; tuning has half of them.
    """

    task: Task
    widths: tuple[int, ...] = (32,)
    steps: int = 4000

    def sizes(self, kind: str, width: int, norms: bool) -> Sizes:
        """Return the sizes of a network."""
        return sizes_of(self.task, kind, width, norms)


Chosen = dict[tuple[str, str], Choice]
"""Chosen norms and rates, by the names of functions and of a network."""


def choices_of(functions: Mapping[str, Functions], rates: tuple[float, ...]) -> Generator[list[Piece], Any, Chosen]:
    """Yield the trainings of all networks on all functions, and return their norms and rates."""
    tunings = {}
    for name, of in functions.items():
        for kind in KINDS:
            keys, sizes = {"functions": name, "network": kind}, partial(of.sizes, kind, of.widths[len(of.widths) // 2])
            tunings[name, kind] = tuning(keys, of.task, sizes, norms_of(kind), of.steps, rates)
    chosen = yield from choices([*tunings.values()])
    return dict(zip(tunings, chosen, strict=True))


def network(
    name: str, of: Functions, kind: str, width: int, choice: Choice, measured: Measured, times: int = 1
) -> Piece:
    """Return the training of a network that is measured, some times as long as that of others."""
    keys: dict[str, Any] = {"functions": name, "network": kind, "width": width, "times": times}
    sizes = of.sizes(kind, width, choice.norms)
    return Piece("networks", keys, partial(trained, of.task, sizes, times * of.steps, choice.rate, SEEDS, measured))


def settings_of(functions: Mapping[str, Functions], rates: tuple[float, ...], longer: Any) -> dict[str, Any]:
    """Return the settings of a study of functions that prompts give."""
    tasks = {name: [asdict(task), *of] for name, (task, *of) in functions.items()}  # type: ignore[call-overload]
    sizes = {"layers": LAYERS, "seeds": SEEDS, "batch": BATCH, "tested": TESTED}
    return {"functions": tasks, "rates": rates, "norms": NORMS, "longer": longer, **sizes}
