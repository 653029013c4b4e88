"""Claims: approximation in eight dimensions, of functions with jumps, by depth, and by weights computed from the data.

Run `python -m experiments approximation_further`; it writes experiments/results/approximation_further.json and the
tables of docs/findings/approximation.md, which states beforehand what decides.  Networks that a killed run has trained
aren't
trained again.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from experiments.approximation.direct import computed, read_out
from experiments.approximation.further_tables import tables
from experiments.approximation.selection import matched
from experiments.approximation.tokens import JUMPS, SMOOTH, Numbers, Pointers
from experiments.generalization.networks import TRANSFORMER, WHOLE, Network, Sizes, count, drawn
from experiments.generalization.plan import BATCH, Unit, norms_of, of_seeds, run, tune
from experiments.generalization.tasks import Demonstrated, Examples, Task
from experiments.generalization.training import Budget, each, outputs, train
from experiments.kept_results import journal_of, store
from experiments.markdown import Fields, cells

SEEDS, RATES, TESTED = 5, (1e-3, 3e-3, 1e-2, 3e-2), 8192
STEPS, OF_TUNING = {"numbers": 3000, "pointers": 6000}, {"numbers": 1000, "pointers": 3000}
"""The steps of training, and of tuning, by the kind of task."""
WIDTHS, WIDEST = (8, 16, 32), 32
KINDS = ("one layer", "perceptron", "fixed pattern", TRANSFORMER)
DEEP = (
    ("one layer", 1),
    ("perceptron", 2),
    ("perceptron", 4),
    ("fixed pattern", 4),
    (TRANSFORMER, 1),
    (TRANSFORMER, 2),
    (TRANSFORMER, 4),
)
"""The networks on pointers, with their layers."""
POINTERS = "pointers"
LONGER = 4
"""The factor by which networks on pointers are also trained longer."""
SCALES, FITTED = (0.5, 1.0, 2.0, 4.0), 16384
"""Factors of inner weights of which the best is taken, and the examples that outer ones are fitted to."""
DIRECT: dict[str, Task] = {
    **{name: Numbers(name=name) for name in SMOOTH},
    "linear, 16 demonstrations": Demonstrated(family="linear", demonstrations=16),
}

Results = dict[str, Any]


def sizes_of(task: Task, kind: str, width: int, layers: int = 2, *, norms: bool = True) -> Sizes:
    """Return the sizes of a network with as many parameters as the Transformer of two layers."""
    transformer = Sizes(kind=TRANSFORMER, norms=norms, layers=2, features=width, neurons=4 * width)
    # A perceptron's stream has all tokens in it, and is twice as wide.
    features = 2 * width if kind == "perceptron" else width
    like = replace(transformer, kind=kind, layers=layers, features=features)
    return matched(like, count(transformer, task), partial(count, task=task))


def errors(network: Network, examples: Examples) -> dict[str, float]:
    """Return the root mean square error, the share of points where it is above one half, and the largest."""
    return _of_errors(outputs(network, examples) - examples.targets)


def _of_errors(off: Array) -> dict[str, float]:
    # A network that has diverged is the worst, and JSON has no infinity.
    sizes = np.nan_to_num(np.abs(np.asarray(off)), nan=1e9, posinf=1e9)
    root = float(np.sqrt((sizes**2).mean()))
    return {"error": root, "far": float((sizes > 0.5).mean()), "largest": float(sizes.max())}


def tested(task: Task, seed: int) -> Examples:
    """Return examples that no network was trained on; of demonstrated functions with all demonstrations."""
    key = jax.random.key(seed)
    if isinstance(task, Demonstrated):
        return task.draw_with(key, TESTED, task.demonstrations)
    return task.draw(key, TESTED)


def measured(task: Task, network: Network) -> dict[str, Any]:
    """Return the errors of a network; on pointers also those by the number of steps."""
    found: dict[str, Any] = errors(network, tested(task, SEEDS + 2))
    if isinstance(task, Pointers):
        found["steps"] = [
            errors(network, task.asked(jax.random.key(SEEDS + 3), jnp.full(TESTED, steps)))["error"]
            for steps in range(1, task.most + 1)
        ]
    return found


def trained(task: Task, sizes: Sizes, rate: float, steps: int) -> dict[str, Any]:
    """Return the errors of networks of all seeds."""
    seeds = [measured(task, network) for network in of_seeds(task, sizes, Budget(steps, BATCH), rate, SEEDS)]
    return {"sizes": asdict(sizes), "parameters": count(sizes, task), "rate": rate, "seeds": seeds}


def compared() -> Iterator[tuple[str, Task, dict[bool, Sizes]]]:
    """Yield the name, the task and the sizes of every network that is trained, by whether it has norms."""
    for name in (*SMOOTH, *JUMPS):
        task: Task = Numbers(name=name)
        for width in WIDTHS:
            for kind in KINDS:
                yield f"{name}; {kind}; {width}", task, {False: sizes_of(task, kind, width, norms=False)}
    for kind, layers in DEEP:
        sizes = {norms: sizes_of(Pointers(), kind, WIDEST, layers, norms=norms) for norms in norms_of(kind)}
        yield f"{POINTERS}; {kind}; {layers}", Pointers(), sizes


def _steps(of: dict[str, int], task: Task) -> int:
    return of["pointers" if isinstance(task, Pointers) else "numbers"]


def tuning() -> Iterator[Unit]:
    """Yield the networks that are trained for choosing rates and norms."""
    for name, task, of_norms in compared():
        for norms, sizes in of_norms.items():
            yield f"tuning; {name}; {norms}", tune, (task, sizes, Budget(_steps(OF_TUNING, task), BATCH), RATES)


def networks(tuned: dict[str, dict[str, Any]]) -> Iterator[Unit]:
    """Yield the networks that are measured."""
    for name, task, of_norms in compared():
        yield name, trained, (task, *_chosen(tuned, name, of_norms), _steps(STEPS, task))


def longer(tuned: dict[str, dict[str, Any]]) -> Iterator[Unit]:
    """Yield the networks on pointers that are trained longer, which was asked afterwards."""
    for name, task, of_norms in compared():
        if isinstance(task, Pointers):
            given = task, *_chosen(tuned, name, of_norms), LONGER * _steps(STEPS, task)
            yield f"{name}; {LONGER} times as long", trained, given


def _chosen(tuned: dict[str, dict[str, Any]], name: str, of_norms: dict[bool, Sizes]) -> tuple[Sizes, float]:
    choices = [(norms, rate) for norms in of_norms for rate in RATES]
    found = [tuned[f"tuning; {name}; {norms}"][str(rate)] for norms, rate in choices]
    norms, rate = choices[int(np.argmin(found))]
    return of_norms[norms], rate


def _seconds(compute: Callable[[], Any]) -> tuple[Any, float]:
    """Return what is computed and the processor time of a second time, when everything is compiled."""
    jax.block_until_ready(compute())
    began = time.process_time()
    found = jax.block_until_ready(compute())
    return found, time.process_time() - began


def from_data(name: str) -> dict[str, Any]:
    """Return the errors and times of networks with weights computed from the data, and of trained ones."""
    task = DIRECT[name]
    return {kind: _from_data(task, kind) for kind in (TRANSFORMER, WHOLE[0])}


def _from_data(task: Task, kind: str) -> dict[str, Any]:
    of_norms = {norms: sizes_of(task, kind, WIDEST, norms=norms) for norms in norms_of(kind)}
    chosen_by, examples = tested(task, SEEDS + 1), tested(task, SEEDS + 2)
    keys, budget = [jax.random.key(seed) for seed in range(SEEDS)], Budget(STEPS["numbers"], BATCH)

    # Both ways have their norms and their scale or rate chosen by one network with another seed, on examples apart.
    makes = {norms: jax.jit(partial(computed, sizes, task, number=FITTED)) for norms, sizes in of_norms.items()}
    of_scale = {
        (norms, scale): errors(make(jax.random.key(SEEDS), scale=jnp.asarray(scale)), chosen_by)["error"]
        for norms, make in makes.items()
        for scale in SCALES
    }
    norms, scale = min(of_scale, key=of_scale.__getitem__)
    made = [_seconds(partial(makes[norms], key, scale=jnp.asarray(scale))) for key in keys]
    seconds = float(np.median([spent for _, spent in made]))

    tunings = {norms: tune(task, sizes, Budget(budget.steps // 3, BATCH), RATES) for norms, sizes in of_norms.items()}
    of_rate = {(norms, rate): tunings[norms][str(rate)] for norms in tunings for rate in RATES}
    trained_norms, rate = min(of_rate, key=of_rate.__getitem__)
    rates = jnp.full(SEEDS, rate)
    by_training, spent = _seconds(partial(train, of_norms[trained_norms], task, budget, jnp.stack(keys), rates))
    steps = max(1, round(budget.steps * seconds * SEEDS / spent))
    briefly = train(of_norms[trained_norms], task, Budget(steps, BATCH), jnp.stack(keys), rates)
    found = {
        "parameters": count(of_norms[norms], task),
        "norms": norms,
        "scale": scale,
        "scales": {f"{norms}, {scale}": error for (norms, scale), error in of_scale.items()},
        "rate": rate,
        "seconds": seconds,
        "seconds of training": spent / SEEDS,
        "steps": steps,
        "computed": [errors(network, examples) for network, _ in made],
        "trained": [errors(network, examples) for network in each(by_training)],
        "as briefly trained": [errors(network, examples) for network in each(briefly)],
    }
    if kind == TRANSFORMER:
        found["read out"] = [_read_out(task, of_norms[norms], key, examples) for key in keys]
    return found


def _read_out(task: Task, sizes: Sizes, key: Array, examples: Examples) -> dict[str, float]:
    weights_key, examples_key = jax.random.split(key)
    written = read_out(drawn(sizes, task, weights_key), task.draw(examples_key, FITTED), examples)
    return _of_errors(written - examples.targets)


def direct() -> Iterator[Unit]:
    """Yield the tasks whose weights are computed from data."""
    for name in DIRECT:
        yield f"from data; {name}", from_data, (name,)


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page."""
    text = tables(results)
    return {"tables": text, **cells(text)}


def settings() -> dict[str, Any]:
    """Return all settings that the results depend on."""
    sizes = {"widths": WIDTHS, "kinds": KINDS, "deep": DEEP}
    training = {
        "rates": RATES,
        "steps": STEPS,
        "of tuning": OF_TUNING,
        "batch": BATCH,
        "seeds": SEEDS,
        "tested": TESTED,
    }
    return {**sizes, **training, "scales": SCALES, "fitted": FITTED}


def main() -> None:
    """Train the networks, and store the results."""
    journal = journal_of("approximation_further", settings())
    tuned = run(journal, tuning(), "Tuning")
    results = {
        "settings": settings(),
        "tuned": tuned,
        "networks": run(journal, networks(tuned), "Networks"),
        "from data": run(journal, direct(), "Weights from data"),
        "longer": run(journal, longer(tuned), "Longer"),
    }
    store("approximation_further", results)
