"""Pieces of studies: trainings by which rates and norms are chosen, and trainings that are measured."""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from experiments.generalization.networks import KINDS, Network, Sizes, count
from experiments.generalization.plan import BATCH, SEEDS, norms_of, of_seeds, sizes_of, tune
from experiments.generalization.tasks import Task
from experiments.generalization.training import Budget
from experiments.study import Piece, Row

Measured = Callable[[Task, Sizes, Network], Row]
"""From a task, a network's sizes and the network to its measurements."""


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
        keys: what tells the network from others.
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

    @property
    def tuned_width(self) -> int:
        """The width at which rates and norms are chosen."""
        return self.widths[len(self.widths) // 2]

    def sizes(self, kind: str, width: int, norms: bool) -> Sizes:
        """Return the sizes of a network."""
        return sizes_of(self.task, kind, width, norms)


Chosen = dict[tuple[str, str], Choice]
"""Chosen norms and rates, by the names of functions and of a network."""


def choices_of(functions: Mapping[str, Functions], rates: tuple[float, ...]) -> Generator[list[Piece], Any, Chosen]:
    """Yield the trainings of all networks on all functions, and return their norms and rates."""
    names = [(name, kind) for name in functions for kind in KINDS]
    tunings = []
    for name, kind in names:
        of = functions[name]
        sizes = partial(of.sizes, kind, of.tuned_width)
        tunings.append(tuning({"functions": name, "network": kind}, of.task, sizes, norms_of(kind), of.steps, rates))
    chosen = yield from choices(tunings)
    return dict(zip(names, chosen, strict=True))


def network(
    name: str, of: Functions, kind: str, width: int, choice: Choice, measured: Measured, times: int = 1
) -> Piece:
    """Return the training of a network that is measured, some times as long as that of others."""
    keys: dict[str, Any] = {"functions": name, "network": kind, "width": width, "times": times}
    sizes = of.sizes(kind, width, choice.norms)
    return Piece("networks", keys, partial(trained, of.task, sizes, times * of.steps, choice.rate, SEEDS, measured))
