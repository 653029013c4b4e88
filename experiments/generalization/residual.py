"""Claim: generalization is "attributed to their MHA modules and residual operation" (Wang & Li, Section 5).

Run `python -m experiments generalization_residual`; it writes experiments/results/generalization_residual.json and the
tables of docs/findings/generalization.md, which states beforehand what decides.  Networks that a killed run has
trained aren't
trained again.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import jax
import numpy as np

from experiments.generalization.measures import TESTED
from experiments.generalization.networks import TRANSFORMER, WITHOUT_RESIDUAL, Network, Sizes
from experiments.generalization.plan import BATCH, NORMS, SEEDS, Unit, chosen, of_seeds, run, tune
from experiments.generalization.tasks import Demonstrated, Examples, Named
from experiments.generalization.training import Budget, error, outputs
from experiments.generalization.verdicts import CONFIRMED, FLOOR, REFUTED, Case
from experiments.kept_results import journal_of, store
from experiments.markdown import Fields, cells, interval, table

RATES, STEPS = (1e-3, 3e-3, 1e-2, 3e-2), 4000
KINDS, DEPTHS, WIDTH = (TRANSFORMER, WITHOUT_RESIDUAL), (2, 6), 32
POOL, SIXTEEN = "linear, 64 in training", "16 functions"
TASKS: dict[str, Demonstrated | Named] = {
    POOL: Demonstrated(family="linear", demonstrations=16, pool=64),
    SIXTEEN: Named(digits=2, base=4),
}

LEARNED = 0.4
"""The largest error on functions of training at which a network counts as one that has learned the task."""

Results = dict[str, Any]


def sizes_of(kind: str, layers: int, norms: bool) -> Sizes:
    """Return the sizes of a network; with and without residual path the parameters are the same."""
    return Sizes(kind=kind, norms=norms, layers=layers, features=WIDTH, neurons=4 * WIDTH)


def _error(network: Network, examples: Examples) -> float:
    return float(error(outputs(network, examples), examples))


def measured(task: Demonstrated | Named, network: Network) -> dict[str, float]:
    """Return the error on new functions after all demonstrations, and that on functions of training."""
    key = jax.random.key(SEEDS + 2)
    if isinstance(task, Named):
        return {"trained": _error(network, task.draw(key, TESTED))}
    drawn = task.draw(key, TESTED * task.demonstrations)
    whole = np.flatnonzero(np.asarray(drawn.mask).all(-1))
    trained = jax.tree.map(lambda leaf: leaf[whole], drawn)
    new = task.draw_with(key, TESTED, task.demonstrations)
    return {"trained": _error(network, trained), "new": _error(network, new)}


def trained(task: Demonstrated | Named, sizes: Sizes, rate: float) -> dict[str, Any]:
    """Return the errors of networks of all seeds."""
    networks = of_seeds(task, sizes, Budget(STEPS, BATCH), rate, SEEDS)
    return {"sizes": asdict(sizes), "rate": rate, "seeds": [measured(task, network) for network in networks]}


def tuning() -> Iterator[Unit]:
    """Yield the networks that are trained for choosing rates and norms."""
    for name, task in TASKS.items():
        for layers in DEPTHS:
            for kind in KINDS:
                for norms in NORMS:
                    given = task, sizes_of(kind, layers, norms), Budget(STEPS // 2, BATCH), RATES
                    yield f"{name}; {layers}; {kind}; {norms}", tune, given


def networks(tuned: dict[str, dict[str, Any]]) -> Iterator[Unit]:
    """Yield the networks that are measured, with the norms and the rate of the smallest error in tuning."""
    for name, task in TASKS.items():
        for layers in DEPTHS:
            for kind in KINDS:
                norms, rate = chosen(RATES, tuned, f"{name}; {layers}", kind)
                yield f"{name}; {layers}; {kind}", trained, (task, sizes_of(kind, layers, norms), rate)


def read_errors(results: Results, task: str, layers: int, kind: str, number: str) -> np.ndarray:
    """Return an error of every seed, at least `FLOOR`."""
    seeds = results["networks"][f"{task}; {layers}; {kind}"]["seeds"]
    return np.maximum([seed[number] for seed in seeds], FLOOR)


LARGE, NOT_LARGE, OPEN = "at least twice as large", "not larger", "open"


def _ratio(results: Results, task: str, layers: int, number: str) -> np.ndarray:
    """Return the logarithm of an error without the residual path over that with it, of every seed."""
    with_path, without = (read_errors(results, task, layers, kind, number) for kind in KINDS)
    return np.log(without / with_path)


def _verdict(logs: np.ndarray, *, decides: bool = True) -> list[str]:
    ratio = Case("", logs, logs).ratio()
    large, not_large = ratio.low >= CONFIRMED, ratio.high <= REFUTED
    return [ratio.written(2), OPEN if not decides else LARGE if large else NOT_LARGE if not_large else OPEN]


def _verdicts(results: Results) -> list[str]:
    rows, new, apart = [], {}, {}
    for layers in DEPTHS:
        logs = {number: _ratio(results, POOL, layers, number) for number in ("new", "trained")}
        learned = read_errors(results, POOL, layers, WITHOUT_RESIDUAL, "trained").mean() <= LEARNED
        new[layers], apart[layers] = _verdict(logs["new"]), _verdict(logs["new"] - logs["trained"], decides=learned)
        rows += [
            [str(layers), "error on new functions", *new[layers]],
            [str(layers), "that over the error on functions of training", *apart[layers]],
            [str(layers), "error on 16 named functions", *_verdict(_ratio(results, SIXTEEN, layers, "trained"))],
        ]
    papers = {said for _, said in new.values()}
    opposite = {said for _, said in (new[DEPTHS[0]], *apart.values())}
    rows += [
        ["", "the papers' prediction", "", _together(papers, LARGE, NOT_LARGE)],
        ["", "the opposite view", "", _together(opposite, NOT_LARGE, LARGE)],
    ]
    return table(["layers", "compared", "without over with the residual path", "verdict"], rows)


def _together(said: set[str], confirms: str, refutes: str) -> str:
    return "confirmed" if said == {confirms} else "refuted" if refutes in said else OPEN


def _errors(results: Results) -> list[str]:
    rows = []
    for name, network in results["networks"].items():
        task, layers, kind = name.split("; ")
        numbers = [[seed.get(number, np.nan) for seed in network["seeds"]] for number in ("trained", "new")]
        norms = "yes" if network["sizes"]["norms"] else "no"
        written = ["" if np.isnan(number).any() else interval(number) for number in numbers]
        rows.append([task, layers, kind, *written, norms, f"{network['rate']:g}"])
    return table(["task", "layers", "network", "functions of training", "new functions", "norms", "rate"], rows)


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page."""
    lines = ["### Verdicts on the residual path", "", *_verdicts(results), ""]
    text = "\n".join([*lines, "### Errors with and without the residual path", "", *_errors(results)])
    return {"tables": text, **cells(text)}


def settings() -> dict[str, Any]:
    """Return all settings that the results depend on."""
    tasks = {name: asdict(task) for name, task in TASKS.items()}
    sizes = {"depths": DEPTHS, "width": WIDTH, "rates": RATES, "steps": STEPS, "batch": BATCH, "seeds": SEEDS}
    return {"tasks": tasks, **sizes, "tested": TESTED}


def main() -> None:
    """Train the networks, and store the results."""
    journal = journal_of("generalization_residual", settings())
    tuned = run(journal, tuning(), "Tuning")
    results = {
        "settings": settings(),
        "tuned": tuned,
        "networks": run(journal, networks(tuned), "Networks"),
    }
    store("generalization_residual", results)
