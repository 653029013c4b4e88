"""Curves of circuits on tasks, as several studies keep them, and the comparison of methods over tasks."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from duat_jax.evaluation.circuit_curve import Curve
from duat_jax.evaluation.comparison import as_dict, compare
from duat_jax.evaluation.statistics import students_mean
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import Prompt, differences, draw
from duat_jax.models.transformer import Transformer
from experiments.markdown import Fields

if TYPE_CHECKING:
    from tokenizers import Tokenizer

AHEAD = "first_ahead"
COMPARED = "logf", "CPR", "CMD", AHEAD
DIGITS = 5
"""Of every logit difference that is kept."""

Kept = dict[str, Any]
"""The measurements on one task, as plain data."""


def measured(
    model: Transformer,
    tokenizer: "Tokenizer",
    task: str,
    count: int,
    seed: int,
    of_prompt: Callable[[int, Prompt], Mapping[str, Any]],
) -> Kept:
    """Return the logit differences of every method's circuits on the prompts of a task."""
    began = time.perf_counter()
    drawn = draw(model, task, count, seed=seed)
    clean, corrupted = (
        np.round(np.asarray(each, np.float64), DIGITS).tolist() for each in differences(model, drawn.prompts)
    )
    of_prompts = [of_prompt(i, row(drawn.prompts, i)) for i in range(count)]
    runs = {
        method: [np.round(np.asarray(of[method], np.float64), DIGITS).tolist() for of in of_prompts]
        for method in of_prompts[0]
    }
    return {
        "prompts": count,
        "tokens": drawn.prompts.clean.shape[1],
        "example": drawn.cases[0]._asdict(),
        "seconds": time.perf_counter() - began,
        "clean": clean,
        "corrupted": corrupted,
        "runs": runs,
    }


def compared(tasks: Sequence[Kept], first: str) -> dict[str, dict[str, dict[str, float]]]:
    """Return of each method its statistics over tasks, and by how much the first one is ahead, with intervals."""
    methods = [first, *(method for method in tasks[0]["runs"] if method != first)]

    def curve(task: Kept, method: str) -> Curve:
        kept = np.array(task["runs"][method])
        # Circuits are only kept in these studies, and not removed.
        return Curve(np.array(task["clean"]), np.array(task["corrupted"]), kept, kept)

    found = as_dict(compare([{method: curve(task, method) for method in methods} for task in tasks]))
    return {method: {name: of[name] for name in COMPARED} for method, of in found.items()}


def by_task(tasks: Mapping[str, Kept]) -> dict[str, dict[str, float]]:
    """Return every method's `logf` on each task alone."""
    alone = {name: compared([task], next(iter(task["runs"]))) for name, task in tasks.items()}
    methods = next(iter(alone.values()))
    return {method: {name: of[method]["logf"]["value"] for name, of in alone.items()} for method in methods}


def leads_by_students_t(alone: Mapping[str, Sequence[float]], firsts: Sequence[str]) -> Fields:
    """Return the leads of some methods over each other one, over tasks alone, by Student's t, as fields of pages."""
    # The intervals of one of them over all others hold together.

    def lead(first: str, name: str) -> str:
        difference = np.subtract(alone[first], alone[name])
        return students_mean(difference, comparisons=len(alone) - 1).written(sign="+")

    return {
        f"{first} before {name}, by Student's t": lead(first, name)
        for first in firsts
        for name in alone
        if name != first
    }
