"""Claim: the Transformer has an "innate capacity to learn from context" (Wang & Li, version 001, Section 5).

Run `python -m experiments generalization_innate`; it writes experiments/results/generalization_innate.json and the
tables of docs/findings/generalization.md, which states beforehand what decides.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.evaluation.statistics import IntervalEstimate, students_mean
from experiments.generalization.measures import TESTED
from experiments.generalization.networks import Network, Sizes
from experiments.generalization.plan import BATCH, SEEDS, Unit, of_seeds, run
from experiments.generalization.tasks import Demonstrated, Examples
from experiments.generalization.training import Budget, error, outputs
from experiments.kept_results import journal_of, kept, store
from experiments.markdown import Fields, cells, table

TASK = Demonstrated(family="linear", demonstrations=16)
KINDS, STEPS, COUNTS = ("mean", "linear attention", "transformer"), (0, 125, 500, 1000, 4000), (1, 4, 16)
BOUND = 0.05
"""The gain above which demonstrations count as a help, in units of the standard deviation of values."""
AS_IS, FITTED = "as it is", "read-out fitted"

Results = dict[str, Any]


@jax.jit
def features(network: Network, examples: Examples) -> Float[Array, "examples features"]:
    """Return the last token's vector after the last layer, and a one."""

    def read_features(inputs: Array, mask: Array) -> Array:
        return jnp.append(network.stack(network.embed(inputs), mask)[-1], 1.0)

    return jax.vmap(read_features)(examples.inputs, examples.mask)


def measured(network: Network) -> dict[str, dict[str, float]]:
    """Return the error on new functions by number of demonstrations, also with the read-out fitted by least squares."""
    found: dict[str, dict[str, float]] = {AS_IS: {}, FITTED: {}}
    for count in COUNTS:
        fit, test = (TASK.draw_with(jax.random.key(SEEDS + 2 + i), TESTED, count) for i in range(2))
        readout = jnp.linalg.lstsq(features(network, fit), fit.targets)[0]
        found[AS_IS][str(count)] = float(error(outputs(network, test), test))
        found[FITTED][str(count)] = float(error(features(network, test) @ readout, test))
    return found


def trained(sizes: Sizes, rate: float, steps: int) -> dict[str, Any]:
    """Return the measurements of networks of all seeds."""
    networks = of_seeds(TASK, sizes, Budget(steps, BATCH), rate, SEEDS)
    return {"seeds": [measured(network) for network in networks]}


def units() -> Iterator[Unit]:
    """Yield the networks, with the sizes, norms and rates of the study of new functions."""
    networks = kept("generalization")["networks"]
    for kind in KINDS:
        chosen = networks[f"linear; {kind}; 32"]
        for steps in STEPS:
            yield f"{kind}; {steps}", trained, (Sizes(**chosen["sizes"]), chosen["rate"], steps)


def gain(results: Results, kind: str, steps: int, readout: str) -> IntervalEstimate:
    """Return by how much 16 demonstrations have a smaller error than one."""
    seeds = [seed[readout] for seed in results["networks"][f"{kind}; {steps}"]["seeds"]]
    return students_mean(np.array([seed[str(COUNTS[0])] - seed[str(COUNTS[-1])] for seed in seeds]))


def _verdict(of: IntervalEstimate) -> str:
    return "confirmed" if of.low > BOUND else "refuted" if of.high < BOUND else "open"


def _row(results: Results, kind: str, steps: int) -> list[str]:
    seeds = results["networks"][f"{kind}; {steps}"]["seeds"]
    written = []
    for readout in (AS_IS, FITTED):
        errors = (
            students_mean(np.array([seed[readout][str(count)] for seed in seeds])) for count in (COUNTS[0], COUNTS[-1])
        )
        written += [of.written(2) for of in (*errors, gain(results, kind, steps, readout))]
    return [kind, str(steps), *written]


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page."""
    verdicts = []
    for kind in KINDS:
        before = [gain(results, kind, 0, readout) for readout in (AS_IS, FITTED)]
        verdicts.append([kind, *(text for of in before for text in (of.written(2, "+"), _verdict(of)))])
    head = [text for how in (AS_IS, FITTED) for text in (f"gain, {how}", f"innate, {how}")]
    columns = [f"{name}, {how}" for how in (AS_IS, FITTED) for name in ("1 demonstration", "16 demonstrations", "gain")]
    lines = ["### Gain by demonstrations before training", "", *table(["network", *head], verdicts), ""]
    rows = [_row(results, kind, steps) for kind in KINDS for steps in STEPS]
    lines += ["### Gain by demonstrations along the training", "", *table(["network", "steps", *columns], rows)]
    text = "\n".join(lines)
    return {"tables": text, **cells(text)}


def main() -> None:
    """Train the networks, and store the results."""
    asked = {"kinds": KINDS, "steps": STEPS, "counts": COUNTS, "seeds": SEEDS, "tested": TESTED}
    networks = run(journal_of("generalization_innate", asked), units(), "Networks")
    results = {"asked": asked, "networks": networks}
    store("generalization_innate", results)
