"""Means over tasks of statistics of circuits, drawn again from tasks and prompts: what several studies compare."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation import circuit_curve
from duat_jax.evaluation.circuit_curve import Curve, faithfulness
from duat_jax.evaluation.statistics import Estimate


def _curve(task: dict[str, Any], method: str, read: np.ndarray) -> Float[np.ndarray, "fractions"]:
    """Return the faithfulness of a method's circuits on some prompts of a task."""
    clean, corrupted, runs = (np.array(each)[read] for each in (task["clean"], task["corrupted"], task["runs"][method]))
    return faithfulness(Curve(clean, corrupted, runs, runs), runs)


def statistics(
    tasks: Sequence[dict[str, Any]], statistic: str, draws: int
) -> dict[str, Float[np.ndarray, "draws_and_all"]]:
    """Return the mean over tasks of a statistic of each method: first of all prompts, then of each random draw.

    A draw takes tasks with replacement, and of each of them prompts with replacement, the same for every method.

    Args:
        tasks: the pieces of finished tasks: the number of prompts, and of each its logit difference after the clean
            text, after the corrupted one, and in each method's runs.
        statistic: a name in `circuit_curve.STATISTICS`.
        draws: how many draws.
    """
    of_curve, random = circuit_curve.STATISTICS[statistic], np.random.default_rng(0)

    def mean(chosen: Sequence[tuple[dict[str, Any], np.ndarray]], method: str) -> float:
        curves = (_curve(task, method, read) for task, read in chosen)
        return float(np.mean([of_curve(curve, curve) for curve in curves]))

    everything = [(task, np.arange(task["prompts"])) for task in tasks]
    drawn = [
        [(tasks[i], random.integers(tasks[i]["prompts"], size=tasks[i]["prompts"])) for i in chosen]
        for chosen in (random.choice(len(tasks), len(tasks)) for _ in range(draws))
    ]
    methods = tasks[0]["runs"]
    return {method: np.array([mean(chosen, method) for chosen in [everything, *drawn]]) for method in methods}


def ahead(found: dict[str, np.ndarray], first: str, method: str) -> dict[str, float]:
    """Return by how much one method is ahead of another, with the 95 % interval over the draws.

    Args:
        found: what `statistics` returns.
        first: the name of the one method.
        method: the name of the other.
    """
    differences = found[first] - found[method]
    low, high = np.quantile(differences[1:], [0.025, 0.975])
    return Estimate(float(differences[0]), float(low), float(high))._asdict()
