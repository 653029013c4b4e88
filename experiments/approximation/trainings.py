"""Trainings on eight numbers, jumps and pointers, and networks whose weights are computed from the data."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from duat_jax.papers import matched
from experiments.approximation.direct import computed, read_out
from experiments.approximation.tokens import SMOOTH, Numbers, Pointers
from experiments.generalization.networks import TRANSFORMER, Network, Sizes, count, drawn
from experiments.generalization.plan import BATCH, norms_of, of_seeds, tune
from experiments.generalization.tasks import Demonstrated, Examples, Task
from experiments.generalization.training import Budget, each, outputs, train
from experiments.study import Row

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


def tuned(task: Task, sizes: Sizes) -> list[Row]:
    """Return the error of a network with each rate."""
    errors = tune(task, sizes, Budget(steps_of(OF_TUNING, task), BATCH), RATES).values()
    return [{"rate": rate, "error": error} for rate, error in zip(RATES, errors, strict=True)]


def trained(task: Task, sizes: Sizes, rate: float, times: int) -> list[Row]:
    """Return the errors of networks of all seeds; on pointers also those by the number of steps."""
    budget, rows = Budget(times * steps_of(STEPS, task), BATCH), list[Row]()
    for seed, network in enumerate(of_seeds(task, sizes, budget, rate, SEEDS)):
        found: Row = errors(network, tested(task, SEEDS + 2))
        if isinstance(task, Pointers):
            found["steps"] = [
                errors(network, task.asked(jax.random.key(SEEDS + 3), jnp.full(TESTED, steps)))["error"]
                for steps in range(1, task.most + 1)
            ]
        rows.append({"seed": seed, "parameters": count(sizes, task), "norms": sizes.norms, "rate": rate, **found})
    return rows


def steps_of(steps: dict[str, int], task: Task) -> int:
    """Return the number of steps on a kind of task."""
    return steps["pointers" if isinstance(task, Pointers) else "numbers"]


def _seconds(compute: Callable[[], Any]) -> tuple[Any, float]:
    """Return what is computed and the processor time of a second time, when everything is compiled."""
    jax.block_until_ready(compute())
    began = time.process_time()
    found = jax.block_until_ready(compute())
    return found, time.process_time() - began


def from_data(name: str, kind: str) -> list[Row]:
    """Return the errors and times of networks with weights computed from the data, and of trained ones."""
    task = DIRECT[name]
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
    given = {
        "parameters": count(of_norms[norms], task),
        "norms": norms,
        "scale": scale,
        "rate": rate,
        "seconds": seconds,
        "seconds of training": spent / SEEDS,
        "steps": steps,
    }
    ways = {
        "computed": [errors(network, examples) for network, _ in made],
        "trained": [errors(network, examples) for network in each(by_training)],
        "as briefly trained": [errors(network, examples) for network in each(briefly)],
    }
    if kind == TRANSFORMER:
        ways["read out"] = [_read_out(task, of_norms[norms], key, examples) for key in keys]
    return [{"way": way, "seed": seed, **given, **of} for way, found in ways.items() for seed, of in enumerate(found)]


def _read_out(task: Task, sizes: Sizes, key: Array, examples: Examples) -> dict[str, float]:
    weights_key, examples_key = jax.random.split(key)
    written = read_out(drawn(sizes, task, weights_key), task.draw(examples_key, FITTED), examples)
    return _of_errors(written - examples.targets)
