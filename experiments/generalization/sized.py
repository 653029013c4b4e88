"""Claim: large scale "lays the foundation" for in-context learning (Wang & Li, Section 1), on demonstrated functions.

Run `python -m experiments generalization_sized`; it writes experiments/results/generalization_sized.json and the tables
of docs/findings/generalization.md, which states beforehand what decides.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from duat_jax.evaluation.statistics import IntervalEstimate, students_mean
from experiments.generalization.measures import TESTED
from experiments.generalization.networks import TRANSFORMER, Network, Sizes, count
from experiments.generalization.plan import BATCH, NORMS, SEEDS, Unit, chosen, of_seeds, run, tune
from experiments.generalization.tasks import Demonstrated, Examples
from experiments.generalization.training import Budget, error, outputs
from experiments.kept_results import journal_of, store
from experiments.markdown import Fields, cells, table

TASK = Demonstrated(family="linear", demonstrations=16)
RATES, STEPS, WIDTHS, DECIDES = (1e-3, 3e-3, 1e-2, 3e-2), 4000, (4, 8, 16, 32), 8
LONGER = 4
"""The factor by which the two smallest networks are also trained longer."""
OWN, OTHER = "its own demonstrations", "another function's"
BOUNDS = 1 / 3, 2 / 3
"""The part of the largest network's gain below which a smaller one lacks it, and above which it has it."""

Results = dict[str, Any]


def sizes_of(width: int, norms: bool) -> Sizes:
    """Return the sizes of a Transformer."""
    return Sizes(kind=TRANSFORMER, norms=norms, layers=2, features=width, neurons=4 * width)


@jax.jit
def examples(key: Array) -> tuple[Examples, Examples]:
    """Return new functions with all their demonstrations, and with another function's at the same points."""
    own_keys, other_keys, point_keys = (jax.random.split(of, TESTED) for of in jax.random.split(key, 3))
    draw = jax.vmap(TASK.given, (0, 0, None))
    own, other = (draw(keys, point_keys, jnp.asarray(TASK.demonstrations)) for keys in (own_keys, other_keys))
    return own, other._replace(targets=own.targets)


def measured(network: Network) -> dict[str, float]:
    """Return the error on new functions after their own demonstrations, and after another function's."""
    of_both = zip((OWN, OTHER), examples(jax.random.key(SEEDS + 2)), strict=True)
    return {name: float(error(outputs(network, of), of)) for name, of in of_both}


def trained(sizes: Sizes, rate: float, steps: int) -> dict[str, Any]:
    """Return the measurements of networks of all seeds."""
    networks = of_seeds(TASK, sizes, Budget(steps, BATCH), rate, SEEDS)
    return {"parameters": count(sizes, TASK), "rate": rate, "seeds": [measured(network) for network in networks]}


def tuning() -> Iterator[Unit]:
    """Yield the networks that are trained for choosing rates and norms, at every size."""
    for width in WIDTHS:
        for norms in NORMS:
            given = TASK, sizes_of(width, norms), Budget(STEPS // 2, BATCH), RATES
            yield f"{width}; {TRANSFORMER}; {norms}", tune, given


def networks(tuned: dict[str, dict[str, Any]]) -> Iterator[Unit]:
    """Yield the networks that are measured."""
    for width in WIDTHS:
        norms, rate = chosen(RATES, tuned, str(width), TRANSFORMER)
        for times in (1, LONGER) if width <= DECIDES else (1,):
            yield f"{width}; {times}", trained, (sizes_of(width, norms), rate, times * STEPS)


def errors(results: Results, name: str, after: str) -> np.ndarray:
    """Return the error of every seed."""
    return np.array([seed[after] for seed in results["networks"][name]["seeds"]])


def gains(results: Results, name: str) -> np.ndarray:
    """Return by how much the error is smaller after a function's own demonstrations, for every seed."""
    gain: np.ndarray = errors(results, name, OTHER) - errors(results, name, OWN)
    return gain


def _verdict(part: IntervalEstimate) -> str:
    return "lacks it" if part.high < BOUNDS[0] else "has it" if part.low > BOUNDS[1] else "open"


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page."""
    largest = gains(results, f"{WIDTHS[-1]}; 1").mean()
    rows = []
    for name, of in results["networks"].items():
        width, times = name.split("; ")
        written = [students_mean(errors(results, name, after)).written(2) for after in (OWN, OTHER)]
        gain, part = students_mean(gains(results, name)), students_mean(gains(results, name) / largest)
        verdict = "" if name == f"{WIDTHS[-1]}; 1" else _verdict(part)
        row = [width, str(STEPS * int(times)), f"{of['parameters']:,}", f"{of['rate']:g}", *written]
        rows.append([*row, gain.written(2, "+"), part.written(2), verdict])
    head = ["width", "steps", "parameters", "rate", f"error, {OWN}", f"error, {OTHER}"]
    head += ["gain", "part of the largest's", "verdict"]
    text = "\n".join(["### Gain by demonstrations by size", "", *table(head, rows)])
    return {"tables": text, **cells(text)}


def main() -> None:
    """Train the networks, and store the results."""
    settings = {"rates": RATES, "steps": STEPS, "widths": WIDTHS, "seeds": SEEDS, "batch": BATCH, "tested": TESTED}
    journal = journal_of("generalization_sized", settings)
    tuned = run(journal, tuning(), "Tuning")
    store(
        "generalization_sized",
        {"settings": settings, "tuned": tuned, "networks": run(journal, networks(tuned), "Networks")},
    )
