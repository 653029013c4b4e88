"""Claims: the decrease of the error of N sigmoids, and the parameters by which a prompt selects a network's function.

With equal parameters and equal training: a perceptron, a Transformer whose pattern is fixed, and a Transformer.

Run `python -m experiments approximation`; it writes experiments/results/approximation.json, and the tables and pictures
of docs/findings/approximation.md.  What was measured is kept in a journal: a killed run goes on.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from duat_jax.evaluation.journal import Journal
from experiments.approximation import moved_parameters, selection, sigmoids
from experiments.approximation.report import draw_pictures, numbers_of, tables_of
from experiments.approximation.selection import CONTENT, FOUR, KINDS, SHIFTS, TASKS, Sizes, count, matched
from experiments.approximation.sigmoids import FIT_STEPS, NEURONS
from experiments.environment import environment
from experiments.markdown import Fields, cells

RESULTS, WORK = Path("experiments/results/approximation.json"), Path("experiments/results/work/approximation.jsonl")
SEEDS, STEPS, SHORT = 5, 3000, 1500
RATES = 1e-3, 3e-3, 1e-2
"""Of which the best is taken for each network, by half of the steps with another seed."""
LAYERS, WIDTHS = (1, 2, 4), (32, 64, 128)
TESTED, TAKEN_APART = 2000, 16
"""The numbers of sequences that errors are taken on, and of those that are unrolled."""


def _fitted(name: str, dimensions: int, neurons: int) -> dict[str, list[float]]:
    function, keys = sigmoids.FUNCTIONS[name], jax.random.split(jax.random.key(0), SEEDS)
    with jax.enable_x64(True):
        units = sigmoids.fit(function, keys, neurons=neurons, dimensions=dimensions, steps=FIT_STEPS[dimensions])
        return _plain(sigmoids.errors(function, units, jax.random.key(1))._asdict())


def _steps(name: str, neurons: int) -> dict[str, list[float]]:
    function = sigmoids.FUNCTIONS[name]
    with jax.enable_x64(True):
        units = jax.tree.map(lambda a: a[None], sigmoids.staircase(function, neurons))
        return _plain(sigmoids.errors(function, units, jax.random.key(1))._asdict())


def _plain(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), tree)


def _error_of_own(written: Any, target: Any) -> Any:
    """Return the error against the function of the own prompt, over all other prompts: `[..., prompts]`."""
    squares = np.asarray((written - target.swapaxes(0, 1)[:, :, None]) ** 2).mean((-4, -1))
    different = ~np.eye(squares.shape[-1], dtype=bool)
    return np.sqrt((squares * different).sum(-1) / different.sum(-1))


def _taken_apart(network: Any, task: str, content: Any) -> dict[str, Any]:
    """Return the changes of one network's parameters, and the effect of each source."""
    target, after = (
        selection.targets(task, content),
        selection.outputs(_with_seed_axis(network), content)[0].swapaxes(0, 1),
    )
    exchanged = moved_parameters.exchange(network, content)
    written = {
        "held": exchanged.corners,
        "rerun weights": exchanged.rerun_weights,
        "rerun biases": exchanged.rerun_biases,
    }
    mean_pattern = moved_parameters.with_mean_patterns(network, content).swapaxes(0, 1)
    return {
        "changes": _plain(moved_parameters.changes(network, content)),
        "way": {name: _plain(moved_parameters.way(y, after)) for name, y in written.items()},
        "error": {name: _plain(_error_of_own(y, target)) for name, y in written.items()}
        | {"mean pattern": _plain(selection.root_mean_square(mean_pattern - target))},
        "closes within": float(jnp.abs(exchanged.corners[-1] - after[:, :, None]).max()),
    }


def _with_seed_axis(network: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[None], network)


def _tuned(sizes: Sizes, steps: int) -> dict[float, float]:
    """Return the error of a network with each rate, in half of the steps and on sequences of their own."""
    content, key = selection.sequences(jax.random.key(SEEDS + 1), TESTED), jax.random.key(SEEDS)[None]
    target = selection.targets(sizes.task, content)
    trained = {rate: selection.train(sizes, key, steps=steps // 2, rate=rate) for rate in RATES}
    errors = {
        rate: selection.root_mean_square(selection.outputs(of, content)[0] - target) for rate, of in trained.items()
    }
    return {rate: float(error.mean()) for rate, error in errors.items()}


def _trained(sizes: Sizes, steps: int, taken_apart: bool) -> dict[str, Any]:
    tuned = _tuned(sizes, steps)
    rate = min(tuned, key=lambda rate: np.nan_to_num(tuned[rate], nan=np.inf))
    began = time.perf_counter()
    networks = selection.train(sizes, jax.random.split(jax.random.key(0), SEEDS), steps=steps, rate=rate)
    jax.block_until_ready(networks)
    seconds = time.perf_counter() - began
    content = selection.sequences(jax.random.key(1), TESTED)
    off = selection.outputs(networks, content) - selection.targets(sizes.task, content)
    curve = jnp.sin(jnp.linspace(0.0, 5.0, CONTENT))[None]
    result = {
        "sizes": asdict(sizes),
        "parameters": count(sizes),
        "tuned": {str(rate): error for rate, error in tuned.items()},
        "rate": rate,
        "seconds": seconds,
        "error": _plain(selection.root_mean_square(off)),
        "largest": _plain(jnp.abs(off).max((-2, -1))),
        "curve": {
            "content": _plain(curve[0]),
            "asked": _plain(selection.targets(sizes.task, curve)[:, 0]),
            "written": _plain(selection.outputs(networks, curve)[:, :, 0]),
        },
    }
    if taken_apart:
        networks_by_seed = [jax.tree.map(lambda leaf, i=i: leaf[i], networks) for i in range(SEEDS)]
        result["taken apart"] = [
            _taken_apart(network, sizes.task, content[:TAKEN_APART]) for network in networks_by_seed
        ]
    return result


def _like(kind: str, task: str, layers: int) -> Sizes:
    """Return a network with as many parameters as the Transformer of the same depth."""
    transformer = Sizes(kind="transformer", task=task, layers=layers, features=32, neurons=64)
    return matched(replace(transformer, kind=kind), count(transformer))


def _compared() -> Iterator[Sizes]:
    """Return the compared networks: every kind, with one layer and with two."""
    for layers in (2, 1):
        for task in TASKS:
            for kind in KINDS:
                yield _like(kind, task, layers)


def _varied() -> Iterator[Sizes]:
    """Return the networks with varied depth and width."""
    for layers in LAYERS:
        for neurons in WIDTHS:
            for kind in ("perceptron", "transformer"):
                yield Sizes(kind=kind, task=FOUR, layers=layers, features=32, neurons=neurons)


def _further() -> Iterator[Sizes]:
    """Return networks with one layer that say why some of them fail: more heads, and the prompt in other places."""
    for kind in KINDS[1:]:
        like = _like(kind, SHIFTS, 1)
        yield replace(like, heads=8)
        yield replace(like, prompt="every number")
    for kind in ("perceptron", "transformer"):
        yield replace(_like(kind, FOUR, 1), prompt="nearly alike")


def _name(sizes: Sizes) -> str:
    further = [f"{sizes.heads} heads"] if sizes.heads != Sizes.heads else []
    further += [f"prompt {sizes.prompt}"] if sizes.prompt != Sizes.prompt else []
    return ", ".join([sizes.task, sizes.kind, f"{sizes.layers} layers of {sizes.neurons}", *further])


def measure() -> dict[str, Any]:
    """Run all measurements, and return the results as plain data."""
    WORK.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(
        WORK, {"seeds": SEEDS, "rates": RATES, "steps": STEPS, "tested": TESTED, "taken apart": TAKEN_APART}
    )

    def trained(sizes: Iterator[Sizes], steps: int, taken_apart: int) -> dict[str, Any]:
        return {
            _name(network_sizes): journal.once(
                f"{_name(network_sizes)}, {steps} steps",
                partial(_trained, network_sizes, steps, network_sizes.layers == taken_apart),
            )
            for network_sizes in sizes
        }

    compared = trained(_compared(), STEPS, 2)
    fits = {
        f"{name}, {dimensions}": {
            str(neurons): journal.once(
                f"{name}, {dimensions} dimensions, {neurons} neurons", partial(_fitted, name, dimensions, neurons)
            )
            for neurons in NEURONS
        }
        for dimensions in FIT_STEPS
        for name in sigmoids.FUNCTIONS
    }
    steps = {
        name: {str(n): journal.once(f"{name}, {n} steps", partial(_steps, name, n)) for n in NEURONS}
        for name in sigmoids.FUNCTIONS
    }
    content = selection.sequences(jax.random.key(1), TESTED)
    return {
        "environment": environment(),
        "seeds": SEEDS,
        "steps": {"networks": STEPS, "depth and width": SHORT, "fits": FIT_STEPS},
        "blind": {task: _plain(selection.blind(task, content)) for task in TASKS},
        "fits": fits,
        "staircases": steps,
        "networks": compared,
        "further": trained(_further(), STEPS, 0),
        "depth and width": trained(_varied(), SHORT, 0),
    }


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    tables = tables_of(results)
    return {"tables": tables, **cells(tables), **numbers_of(results)}


def main() -> None:
    """Run all measurements, and write the results."""
    results = measure()
    RESULTS.write_text(json.dumps(results) + "\n", encoding="utf-8")
    draw_pictures(results)
