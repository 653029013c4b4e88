"""Sums of sigmoids, and networks that are trained and taken apart: the measurements of the study of approximation."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax import papers
from duat_jax.papers import PROMPT_NETWORKS, PROMPT_TASKS, PromptNetwork, PromptSizes, count_parameters, matched
from duat_jax.papers.networks import FOUR, SHIFTS
from duat_jax.papers.parameters import embedded, held_values, run_with
from duat_jax.papers.prompted import root_mean_square
from experiments.study import Row

SEEDS, STEPS, SHORT = 5, 3000, 1500
RATES = 1e-3, 3e-3, 1e-2
"""Of which the best is taken for each network, by half of the steps with another seed."""
LAYERS, WIDTHS = (1, 2, 4), (32, 64, 128)
TESTED, TAKEN_APART = 2000, 16
"""The numbers of sequences that errors are taken on, and of those that are unrolled."""
MEANS = "run again, mean patterns"
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


def tuned(sizes: PromptSizes, steps: int) -> list[Row]:
    """Return the error of a network with each rate, in half of the steps and on sequences of their own."""
    sequences, key = papers.draw_sequences(jax.random.key(SEEDS + 1), TESTED), jax.random.key(SEEDS)[None]
    rows = []
    for rate in RATES:
        network = papers.train_prompted(sizes, key, steps=steps // 2, rate=rate)
        error = papers.prompted_errors(network, sizes.task, sequences)[0].mean()
        rows.append({"rate": rate, "error": float(jnp.nan_to_num(error, nan=DIVERGED, posinf=DIVERGED))})
    return rows


def tested() -> Array:
    """Return the sequences that errors are taken on."""
    return papers.draw_sequences(jax.random.key(1), TESTED)


def trained(sizes: PromptSizes, steps: int, rate: float) -> Any:
    """Return trained networks, one of each seed."""
    return papers.train_prompted(sizes, jax.random.split(jax.random.key(0), SEEDS), steps=steps, rate=rate)


def measured(networks: Any, sizes: PromptSizes, rate: float) -> list[Row]:
    """Return the errors of every seed, by prompt and their mean."""
    given = {"parameters": count_parameters(sizes), "rate": rate}
    errors = np.asarray(papers.prompted_errors(networks(), sizes.task, tested()))
    return [{"seed": seed, **given, "error": float(of.mean()), "errors": of} for seed, of in enumerate(errors)]


def blind() -> list[Row]:
    """Return the error of the mean of all prompts' targets, for every prompt."""
    return [
        {"task": task, "prompt": prompt, "error": float(error)}
        for task in PROMPT_TASKS
        for prompt, error in zip(PROMPT_TASKS[task], papers.blind_errors(task, tested()), strict=True)
    ]


def _of_different(pairs: Any) -> Any:
    """Return the mean over pairs of different prompts, the last two axes."""
    return np.asarray(pairs)[..., ~np.eye(pairs.shape[-1], dtype=bool)].mean(-1)


def _seeds(networks: Any) -> Iterator[tuple[int, Any]]:
    for seed in range(SEEDS):
        yield seed, jax.tree.map(lambda leaf, seed=seed: leaf[seed], networks)


def moved(networks: Any) -> list[Row]:
    """Return the change of every parameter from prompt to prompt, of every seed."""
    return [
        {"seed": seed, "parameter": symbol, "change": float(_of_different(change))}
        for seed, network in _seeds(networks())
        for symbol, change in papers.parameter_changes(network, tested()[:TAKEN_APART]).items()
    ]


@jax.jit
def with_mean_patterns(
    network: PromptNetwork, sequences: Float[Array, "sequences numbers"]
) -> Float[Array, "sequences prompts numbers"]:
    """Return a network's outputs with every attention pattern replaced by its mean over all sequences and prompts."""
    x = jax.vmap(partial(embedded, network))(sequences)
    of_all = jax.vmap(jax.vmap(partial(held_values, network.states)))(x)
    mean = jax.tree.map(lambda pattern: pattern.mean((0, 1)), of_all)
    return jax.vmap(jax.vmap(lambda x: run_with(network.states, x, mean)))(x)


def _error_of_own(written: Any, target: Any) -> float:
    """Return the error against the function of the own prompt, over all other prompts."""
    squares = np.asarray((written - target.swapaxes(0, 1)[:, :, None]) ** 2).mean((-4, -1))
    different = ~np.eye(squares.shape[-1], dtype=bool)
    return float(np.sqrt((squares * different).sum(-1) / different.sum(-1)).mean())


def sources(networks: Any, task: str) -> list[Row]:
    """Return what a network writes when its sources are from different prompts, of every seed."""
    sequences, rows = tested()[:TAKEN_APART], list[Row]()
    target = papers.prompted_targets(task, sequences)
    for seed, network in _seeds(networks()):
        after = papers.prompted_outputs(network, sequences)
        for source, output in papers.exchange_sources(network, sequences).items():
            way, error = float(papers.relative_position(output, after)), _error_of_own(output, target)
            rows.append({"seed": seed, "from the prompt itself": source, "way": way, "error": error})
        means = with_mean_patterns(network, sequences).swapaxes(0, 1)
        error = float(root_mean_square(means - target).mean())
        rows.append({"seed": seed, "from the prompt itself": MEANS, "way": None, "error": error})
    return rows


def like(kind: str, task: str, layers: int) -> PromptSizes:
    """Return a network with as many parameters as the Transformer of the same depth."""
    transformer = PromptSizes(kind="transformer", task=task, layers=layers, features=32, neurons=64)
    return matched(replace(transformer, kind=kind), count_parameters(transformer))


def compared() -> Iterator[PromptSizes]:
    """Yield the compared networks: every kind, with one layer and with two."""
    yield from (like(kind, task, layers) for layers in (2, 1) for task in PROMPT_TASKS for kind in PROMPT_NETWORKS)


def further() -> Iterator[PromptSizes]:
    """Yield networks with one layer that say why some fail: more heads, and the prompt in other places."""
    for kind in PROMPT_NETWORKS[1:]:
        yield replace(like(kind, SHIFTS, 1), heads=8)
        yield replace(like(kind, SHIFTS, 1), prompt="every number")
    for kind in ("perceptron", "transformer"):
        yield replace(like(kind, FOUR, 1), prompt="nearly alike")


def varied() -> Iterator[PromptSizes]:
    """Yield networks of several depths and widths."""
    for layers in LAYERS:
        for neurons in WIDTHS:
            for kind in ("perceptron", "transformer"):
                yield PromptSizes(kind=kind, task=FOUR, layers=layers, features=32, neurons=neurons)
