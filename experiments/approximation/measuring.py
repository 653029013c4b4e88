"""Sums of sigmoids, and networks that are trained and taken apart: the measurements of the study of approximation."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from duat_jax import papers
from experiments.approximation import moved_parameters, selection
from experiments.approximation.selection import FOUR, KINDS, SHIFTS, TASKS, Sizes, count, matched
from experiments.study import Row

SEEDS, STEPS, SHORT = 5, 3000, 1500
RATES = 1e-3, 3e-3, 1e-2
"""Of which the best is taken for each network, by half of the steps with another seed."""
LAYERS, WIDTHS = (1, 2, 4), (32, 64, 128)
TESTED, TAKEN_APART = 2000, 16
"""The numbers of sequences that errors are taken on, and of those that are unrolled."""
PATTERNS, BIASES, MEANS = (
    f"run again, {what}" for what in ("patterns of another", "biases of another", "mean patterns")
)
DIVERGED = 1e9
NEURONS = (4, 8, 16, 32, 64)
"""The numbers of sigmoids."""
FIT_STEPS = {1: 2000, 2: 2000, 8: 4000}
"""The number of training steps of their fits, by the number of dimensions."""


def fitted(name: str, dimensions: int, neurons: int, way: str) -> list[Row]:
    """Return the errors of sums of sigmoids: trained ones, or the construction in steps."""
    function = papers.FUNCTIONS[name]
    with jax.enable_x64(True):
        if way == "trained":
            keys = jax.random.split(jax.random.key(0), SEEDS)
            steps = FIT_STEPS[dimensions]
            units = papers.fit_sigmoids(function, keys, neurons=neurons, dimensions=dimensions, steps=steps)
        else:
            units = jax.tree.map(lambda leaf: leaf[None], papers.staircase(function, neurons))
        errors = papers.approximation_errors(function, units, jax.random.key(1))._asdict()
        return [
            {"seed": seed, **{name: float(values[seed]) for name, values in errors.items()}}
            for seed in range(len(units.bias))
        ]


def tuned(sizes: Sizes, steps: int) -> list[Row]:
    """Return the error of a network with each rate, in half of the steps and on sequences of their own."""
    content, key = selection.sequences(jax.random.key(SEEDS + 1), TESTED), jax.random.key(SEEDS)[None]
    target = selection.targets(sizes.task, content)
    rows = []
    for rate in RATES:
        network = selection.train(sizes, key, steps=steps // 2, rate=rate)
        error = selection.root_mean_square(selection.outputs(network, content)[0] - target).mean()
        rows.append({"rate": rate, "error": float(jnp.nan_to_num(error, nan=DIVERGED, posinf=DIVERGED))})
    return rows


def trained(sizes: Sizes, steps: int, rate: float) -> Any:
    """Return trained networks, one of each seed."""
    return selection.train(sizes, jax.random.split(jax.random.key(0), SEEDS), steps=steps, rate=rate)


def measured(networks: Any, sizes: Sizes, rate: float) -> list[Row]:
    """Return the errors of every seed, by prompt and their mean."""
    content = selection.sequences(jax.random.key(1), TESTED)
    off = selection.outputs(networks(), content) - selection.targets(sizes.task, content)
    given = {"parameters": count(sizes), "rate": rate}
    errors = np.asarray(selection.root_mean_square(off))
    return [{"seed": seed, **given, "error": float(of.mean()), "errors": of} for seed, of in enumerate(errors)]


def blind() -> list[Row]:
    """Return the error of the best output that is independent of the prompt, for every prompt."""
    content = selection.sequences(jax.random.key(1), TESTED)
    return [
        {"task": task, "prompt": prompt, "error": float(error)}
        for task in TASKS
        for prompt, error in zip(TASKS[task], selection.blind(task, content), strict=True)
    ]


def _of_different(pairs: Any) -> Any:
    """Return the mean over pairs of different prompts, the last two axes."""
    return np.asarray(pairs)[..., ~np.eye(pairs.shape[-1], dtype=bool)].mean(-1)


def _seeds(networks: Any) -> Iterator[tuple[int, Any]]:
    for seed in range(SEEDS):
        yield seed, jax.tree.map(lambda leaf, seed=seed: leaf[seed], networks)


def moved(networks: Any) -> list[Row]:
    """Return the change of every parameter from prompt to prompt, of every seed."""
    content = selection.sequences(jax.random.key(1), TESTED)[:TAKEN_APART]
    return [
        {"seed": seed, "parameter": symbol, "change": float(_of_different(change))}
        for seed, network in _seeds(networks())
        for symbol, change in moved_parameters.changes(network, content).items()
    ]


def own_sources(corner: tuple[bool, ...]) -> str:
    """Return the names of the sources that come from the prompt itself."""
    names = zip(moved_parameters.SOURCES, corner, strict=True)
    return " + ".join(name for name, is_own in names if is_own) or "nothing"


def _error_of_own(written: Any, target: Any) -> float:
    """Return the error against the function of the own prompt, over all other prompts."""
    squares = np.asarray((written - target.swapaxes(0, 1)[:, :, None]) ** 2).mean((-4, -1))
    different = ~np.eye(squares.shape[-1], dtype=bool)
    return float(np.sqrt((squares * different).sum(-1) / different.sum(-1)).mean())


def sources(networks: Any, task: str) -> list[Row]:
    """Return what a network writes when its sources are from different prompts, of every seed."""
    content = selection.sequences(jax.random.key(1), TESTED)[:TAKEN_APART]
    target, rows = selection.targets(task, content), list[Row]()
    for seed, network in _seeds(networks()):
        alone = jax.tree.map(lambda leaf: leaf[None], network)
        after = selection.outputs(alone, content)[0].swapaxes(0, 1)
        exchanged = moved_parameters.exchange(network, content)
        written = dict(zip(map(own_sources, moved_parameters.CORNERS), exchanged.corners, strict=True))
        written |= {PATTERNS: exchanged.rerun_weights, BIASES: exchanged.rerun_biases}
        for source, output in written.items():
            way, error = float(moved_parameters.way(output, after)), _error_of_own(output, target)
            rows.append({"seed": seed, "from the prompt itself": source, "way": way, "error": error})
        means = moved_parameters.with_mean_patterns(network, content).swapaxes(0, 1)
        error = float(selection.root_mean_square(means - target).mean())
        rows.append({"seed": seed, "from the prompt itself": MEANS, "way": None, "error": error})
    return rows


def like(kind: str, task: str, layers: int) -> Sizes:
    """Return a network with as many parameters as the Transformer of the same depth."""
    transformer = Sizes(kind="transformer", task=task, layers=layers, features=32, neurons=64)
    return matched(replace(transformer, kind=kind), count(transformer))


def compared() -> Iterator[Sizes]:
    """Yield the compared networks: every kind, with one layer and with two."""
    yield from (like(kind, task, layers) for layers in (2, 1) for task in TASKS for kind in KINDS)


def further() -> Iterator[Sizes]:
    """Yield networks with one layer that say why some fail: more heads, and the prompt in other places."""
    for kind in KINDS[1:]:
        yield replace(like(kind, SHIFTS, 1), heads=8)
        yield replace(like(kind, SHIFTS, 1), prompt="every number")
    for kind in ("perceptron", "transformer"):
        yield replace(like(kind, FOUR, 1), prompt="nearly alike")


def varied() -> Iterator[Sizes]:
    """Yield networks of several depths and widths."""
    for layers in LAYERS:
        for neurons in WIDTHS:
            for kind in ("perceptron", "transformer"):
                yield Sizes(kind=kind, task=FOUR, layers=layers, features=32, neurons=neurons)
