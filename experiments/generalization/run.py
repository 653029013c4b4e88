"""Claim: a network whose parameters move with the prompt fits many functions and follows new ones, a fixed one doesn't.

Run `make generalization`; it writes experiments/results/generalization.json, and the tables and pictures of
docs/generalization.md, which states beforehand what decides.  Networks that a killed run has trained aren't trained
again.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array
from rich.progress import track

from duat_jax.evaluation.journal import Journal
from experiments.approximation.selection import matched
from experiments.environment import environment
from experiments.generalization.measures import TESTED, dissect, measure
from experiments.generalization.networks import FIXED, KINDS, WHOLE, Sizes, count
from experiments.generalization.picture import draw_errors
from experiments.generalization.report import tables_of
from experiments.generalization.tasks import FAMILIES, Demonstrated, Named, Task
from experiments.generalization.training import Budget, each, error, outputs, train
from experiments.pages import Fields, cells, write_pages

RESULTS, WORK = Path("experiments/results/generalization.json"), Path("experiments/results/work")
PICTURE = "docs/generalization.png"
LAYERS, SEEDS, BATCH = 2, 5, 64
RATES, NORMS = (3e-3, 1e-2, 3e-2), (False, True)
DEMONSTRATIONS = 16


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
        """Return the training of every network.

        Args:
            times: how many times as long.
        """
        return Budget(int(times * self.steps), BATCH)


STUDIES: dict[str, Study] = {
    "4 functions": Study(Named(digits=1, base=4)),
    "16 functions": Study(Named(digits=2, base=4)),
    "64 functions": Study(Named(digits=3, base=4), (8, 16, 32), 6000),
    "256 functions": Study(Named(digits=4, base=4), (8, 16, 32), 16000),
    "16 dense functions": Study(Named(digits=2, base=4, dense=True)),
    "64 dense functions": Study(Named(digits=3, base=4, dense=True), (8, 16, 32), 6000),
    "16 functions, unequal": Study(Named(digits=2, base=4, rarest=0.01)),
    **{family: Study(Demonstrated(family=family, demonstrations=DEMONSTRATIONS)) for family in FAMILIES},
    "linear, 64 in training": Study(Demonstrated(family="linear", demonstrations=DEMONSTRATIONS, pool=64)),
}


LONGER = "64 functions", "two layers"
"""The studies in which the closest network of fixed mixing also trains four times as long."""


def norms_of(kind: str) -> tuple[bool, ...]:
    """Return the choices of norms: a single layer has none.

    Args:
        kind: the network's name.
    """
    return NORMS[:1] if kind in WHOLE else NORMS


def sizes_of(task: Task, kind: str, width: int, norms: bool) -> Sizes:
    """Return the sizes of a network with as many parameters as the Transformer of a width.

    Args:
        task: the task.
        kind: the network's name.
        width: of the residual stream.
        norms: whether it has norms.
    """
    transformer = Sizes(kind="transformer", norms=norms, layers=LAYERS, features=width, neurons=4 * width)
    # A perceptron's stream has all tokens in it, and is twice as wide.
    features = 2 * width if kind == "perceptron" else width
    like = replace(transformer, kind=kind, features=features)
    return matched(like, count(transformer, task), partial(count, task=task))


def _tuned(task: Task, sizes: Sizes, budget: Budget) -> dict[str, Any]:
    """Return the errors of networks that are trained for choosing the rate and the norms, by rate."""
    examples = task.draw(jax.random.key(SEEDS + 1), TESTED)
    keys = jnp.stack([jax.random.key(SEEDS)] * len(RATES))
    networks = each(train(sizes, task, budget, keys, jnp.array(RATES)))
    return {str(rate): _known(error(outputs(of, examples), examples)) for rate, of in zip(RATES, networks, strict=True)}


def _known(error: Array) -> float:
    # A network that has diverged is the worst, and JSON has no infinity.
    return float(jnp.nan_to_num(error, nan=1e9, posinf=1e9))


def _trained(task: Task, sizes: Sizes, budget: Budget, rate: float, seeds: int, whole: bool) -> dict[str, Any]:
    key = jax.random.key(SEEDS + 2)
    keys = jnp.stack([jax.random.key(seed) for seed in range(seeds)])
    measured = [
        measure(task, network, sizes, key) | (dissect(task, network, key) if whole else {})
        for network in each(train(sizes, task, budget, keys, jnp.full(seeds, rate)))
    ]
    return {"sizes": asdict(sizes), "parameters": count(sizes, task), "rate": rate, "seeds": measured}


Unit = tuple[str, Callable[..., dict[str, Any]], tuple[Any, ...]]
"""A name in the journal, and what trains networks, which one program trains for all rates or seeds."""


def tuning(names: Iterable[str]) -> Iterator[Unit]:
    """Yield the networks that are trained for choosing rates and norms.

    Args:
        names: of the studies.
    """
    for name in names:
        study = STUDIES[name]
        for kind in KINDS:
            for norms in norms_of(kind):
                sizes = sizes_of(study.task, kind, study.widths[len(study.widths) // 2], norms)
                yield f"{name}; {kind}; {norms}", _tuned, (study.task, sizes, study.budget(0.5))


def chosen(tuned: dict[str, dict[str, Any]], name: str, kind: str) -> tuple[bool, float]:
    """Return the norms and the rate with the smallest error on examples like those of training.

    Args:
        tuned: the errors of tuning.
        name: the study's name.
        kind: the network's name.
    """
    choices = [(norms, rate) for norms in norms_of(kind) for rate in RATES]
    return min(choices, key=lambda choice: tuned[f"{name}; {kind}; {choice[0]}"][str(choice[1])])


def closest(tuned: dict[str, dict[str, Any]], name: str) -> str:
    """Return the network of fixed mixing with the smallest error in tuning.

    Args:
        tuned: the errors of tuning.
        name: the study's name.
    """
    errors = {
        kind: min(min(tuned[f"{name}; {kind}; {norms}"].values()) for norms in norms_of(kind)) for kind in WHOLE + FIXED
    }
    return min(errors, key=lambda kind: errors[kind])


def networks(tuned: dict[str, dict[str, Any]], names: Iterable[str]) -> Iterator[Unit]:
    """Yield the networks that are measured.

    Args:
        tuned: the errors of tuning.
        names: of the studies.
    """
    for name in names:
        task, widths, _ = study = STUDIES[name]
        for kind in KINDS:
            norms, rate = chosen(tuned, name, kind)
            for width in widths:
                given = task, sizes_of(task, kind, width, norms), study.budget(), rate, SEEDS, width == widths[-1]
                yield f"{name}; {kind}; {width}", _trained, given
    for name in filter(LONGER.__contains__, names):
        task, widths, _ = study = STUDIES[name]
        kind = closest(tuned, name)
        norms, rate = chosen(tuned, name, kind)
        sizes = sizes_of(task, kind, widths[-1], norms)
        yield f"{name}; longer", _trained, (task, sizes, study.budget(4), rate, SEEDS, False)


def _on_one_core() -> None:
    """Set up a process in which one core trains networks, which are too small for more, or for a GPU."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    jax.config.update("jax_platforms", "cpu")


def run(journal: Journal, units: Iterator[Unit], title: str) -> dict[str, dict[str, Any]]:
    """Train and measure networks, one on every core, and return the results by name.

    Args:
        journal: of finished ones, which aren't trained again.
        units: the networks.
        title: what the progress shows.
    """
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), _on_one_core) as pool:
        futures: dict[str, Future | None] = {
            name: None if name in journal else pool.submit(compute, *given) for name, compute, given in units
        }
        return {
            name: journal.once(name, lambda future=future: future.result())
            for name, future in track(futures.items(), title)
        }


def settings() -> dict[str, Any]:
    """Return all settings that the results depend on."""
    return {
        "studies": {name: [asdict(task), *rest] for name, (task, *rest) in STUDIES.items()},
        "layers": LAYERS,
        "seeds": SEEDS,
        "batch": BATCH,
        "rates": RATES,
        "norms": NORMS,
        "longer": LONGER,
        "tested": TESTED,
    }


def kept() -> dict[str, Any]:
    """Return the stored results, with no networks if they are of other settings."""
    asked = json.loads(json.dumps(settings()))
    if RESULTS.exists() and (results := json.loads(RESULTS.read_text(encoding="utf-8")))["settings"] == asked:
        return results
    blind = {name: study.task.blind() for name, study in STUDIES.items() if isinstance(study.task, Named)}
    return {"environment": environment(), "settings": asked, "tuned": {}, "blind": blind, "networks": {}}


def main() -> None:
    """Train the networks that aren't kept, first on named functions, store the results, and write the page."""
    WORK.mkdir(parents=True, exist_ok=True)
    journal, results = Journal(WORK / "generalization", settings()), kept()
    for name, found in (results["tuned"] | results["networks"]).items():
        journal.once(name, partial(dict, found))
    for kind in (Named, Demonstrated):
        names = [name for name, study in STUDIES.items() if isinstance(study.task, kind)]
        results["tuned"] |= run(journal, tuning(names), f"{kind.__name__} functions: tuning")
        results["networks"] |= run(journal, networks(results["tuned"], names), f"{kind.__name__} functions")
        RESULTS.write_text(json.dumps(results, allow_nan=False) + "\n", encoding="utf-8")
    draw_errors(results).savefig(PICTURE, dpi=110)
    write_pages()


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation page.

    Args:
        results: what was kept.
    """
    text = tables_of(results)
    return {"tables": text, **cells(text)}


if __name__ == "__main__":
    main()
