"""Claim: large scale "lays the foundation" for in-context learning (Wang & Li, Section 1), on demonstrated functions.

Run `make generalization_sized`; it writes experiments/results/generalization_sized.json and the tables of
docs/generalization.md, which states beforehand what decides.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from duat_jax.evaluation.statistics import Estimate, students_mean
from experiments.generalization.measures import TESTED
from experiments.generalization.networks import TRANSFORMER, Network, Sizes, count
from experiments.generalization.plan import BATCH, NORMS, SEEDS, Unit, chosen, of_seeds, run, tune
from experiments.generalization.tasks import Demonstrated
from experiments.generalization.training import Budget, error, outputs
from experiments.kept_results import journal_of, store
from experiments.pages import Fields, cells, table

TASK = Demonstrated(family="linear", demonstrations=16)
RATES, STEPS, WIDTHS, COUNTS = (1e-3, 3e-3, 1e-2, 3e-2), 4000, (4, 8, 16, 32), (1, 16)
BOUNDS = 1 / 3, 2 / 3
"""The part of the largest network's gain below which a smaller one lacks it, and above which it has it."""

Results = dict[str, Any]


def sizes_of(width: int, norms: bool) -> Sizes:
    """Return the sizes of a Transformer.

    Args:
        width: of its stream.
        norms: whether it has norms.
    """
    return Sizes(kind=TRANSFORMER, norms=norms, layers=2, features=width, neurons=4 * width)


def measured(network: Network) -> dict[str, float]:
    """Return the error on new functions by number of demonstrations.

    Args:
        network: the network.
    """
    found = {}
    for number in COUNTS:
        examples = TASK.draw_with(jax.random.key(SEEDS + 2), TESTED, number)
        found[str(number)] = float(error(outputs(network, examples), examples))
    return found


def trained(sizes: Sizes, rate: float) -> dict[str, Any]:
    """Return the measurements of networks of all seeds.

    Args:
        sizes: of the networks.
        rate: the learning rate.
    """
    networks = of_seeds(TASK, sizes, Budget(STEPS, BATCH), rate, SEEDS)
    return {"parameters": count(sizes, TASK), "rate": rate, "seeds": [measured(network) for network in networks]}


def tuning() -> Iterator[Unit]:
    """Yield the networks that are trained for choosing rates and norms, at every size."""
    for width in WIDTHS:
        for norms in NORMS:
            given = TASK, sizes_of(width, norms), Budget(STEPS // 2, BATCH), RATES
            yield f"{width}; {TRANSFORMER}; {norms}", tune, given


def networks(tuned: dict[str, dict[str, Any]]) -> Iterator[Unit]:
    """Yield the networks that are measured.

    Args:
        tuned: the errors of tuning.
    """
    for width in WIDTHS:
        norms, rate = chosen(RATES, tuned, str(width), TRANSFORMER)
        yield str(width), trained, (sizes_of(width, norms), rate)


def gains(results: Results, width: int) -> np.ndarray:
    """Return by how much 16 demonstrations have a smaller error than one, for every seed.

    Args:
        results: what was kept.
        width: of the networks.
    """
    seeds = results["networks"][str(width)]["seeds"]
    few, many = (np.array([seed[str(number)] for seed in seeds]) for number in COUNTS)
    gain: np.ndarray = few - many
    return gain


def _verdict(part: Estimate) -> str:
    return "lacks it" if part.high < BOUNDS[0] else "has it" if part.low > BOUNDS[1] else "open"


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page.

    Args:
        results: what was kept.
    """
    largest = gains(results, WIDTHS[-1]).mean()
    rows = []
    for width in WIDTHS:
        of = results["networks"][str(width)]
        errors = [students_mean(np.array([seed[str(number)] for seed in of["seeds"]])).written(2) for number in COUNTS]
        gain, part = students_mean(gains(results, width)), students_mean(gains(results, width) / largest)
        verdict = "" if width == WIDTHS[-1] else _verdict(part)
        rows.append([str(width), f"{of['parameters']:,}", *errors, gain.written(2, "+"), part.written(2), verdict])
    head = ["width", "parameters", "1 demonstration", "16 demonstrations", "gain", "part of the largest's", "verdict"]
    text = "\n".join(["### Gain by demonstrations by size", "", *table(head, rows)])
    return {"tables": text, **cells(text)}


def main() -> None:
    """Train the networks, store the results, and write the page."""
    settings = {"rates": RATES, "steps": STEPS, "widths": WIDTHS, "seeds": SEEDS, "batch": BATCH, "tested": TESTED}
    journal = journal_of("generalization_sized", settings)
    tuned = run(journal, tuning(), "Tuning")
    store(
        "generalization_sized",
        {"settings": settings, "tuned": tuned, "networks": run(journal, networks(tuned), "Networks")},
    )


if __name__ == "__main__":
    main()
