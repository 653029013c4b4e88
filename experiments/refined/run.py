"""Question: does a circuit that is optimised on the metric keep more on prompts that it wasn't optimised on?

Run `python -m experiments refined`; it writes experiments/results/refined.json and the tables in
docs/findings/circuits.md,
whose section on optimised circuits states beforehand what decides.  A task that a killed run has finished isn't run
again.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from rich.progress import track

import duat_jax as duat
from duat_jax.evaluation.circuit_curve import FRACTIONS, Curve, faithfulness
from duat_jax.evaluation.circuits import METHODS, UNITS, batches, run, scores_of, top, values
from duat_jax.evaluation.refined_ranking import RATE, by_rank, draw_gradient, refine
from duat_jax.evaluation.statistics import IntervalEstimate, students_mean
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import Prompt, differences, draw
from experiments import smollm2
from experiments.kept_results import journal_of, store
from experiments.markdown import Fields, cells, table
from experiments.masks.run import STATISTICS

TASKS = (
    *("opposite", "comparative", "successor", "repetition", "bracket", "tense", "property", "colour"),
    *("indirect object", "language", "greater than", "pronoun"),
)
"""The tasks that the rule of the steps wasn't chosen on."""
OPTIMISED, MEASURED, SEED = 32, 16, 4
"""The number of prompts that score and optimise, and of the others; the seed of their draw."""
STEPS, MANY = 20, 60
SECANT, FIRST, SECOND = "secant", f"secant, {STEPS} steps", f"secant, {STEPS} steps, other draws"
ONE_STEP, LONGER, FROM_RANDOM = f"secant, {STEPS} steps in one", f"secant, {MANY} steps", f"random, {MANY} steps"
SCORES = SECANT, "secant over masks, twice", "integrated gradients over masks, 10 steps"
SIGNED = "secant, signed"
RIVALS = (*SCORES, ONE_STEP)
"""The rankings that the refined one is compared with."""
OWN, OTHER, MEANS, REMOVED, SAME = "own text", "another's text", "means", "removed", "same prompts"
EVERYWHERE = (*SCORES, FIRST)
"""The rankings that are measured in every test; others with the own corrupted text alone, kept and removed."""
PREDICTED = 0.03
"""By how much the refined ranking is at least ahead of the secant, by the prediction."""
KIND = UNITS["neuron x position"]
DIGITS = 5

Runs = dict[str, dict[str, Any]]


def rankings(
    model: duat.models.Transformer, prompts: Prompt, replaced: Float[Array, "prompts layers tokens neurons"]
) -> dict[str, Float[np.ndarray, "layers tokens neurons"]]:
    """Return rankings of neurons by mean scores, and by steps on the metric from there."""

    def mean_scores(method: str) -> np.ndarray:
        parts = batches(prompts, mean=False)
        each = [np.asarray(scores_of(METHODS[method], model, part.prompts, (KIND,))[0])[: part.new] for part in parts]
        return np.concatenate(each).mean(0, dtype=np.float64)

    found = {method: mean_scores(method) for method in SCORES}
    refined = partial(refine, model, prompts, KIND)
    # `top` ranks by size, so signed scores begin at zero.
    found[SIGNED] = found[SECANT] - found[SECANT].min()
    found[FIRST] = refined(found[SECANT], replaced, STEPS)
    found[SECOND] = refined(found[SECANT], replaced, STEPS, seed=1)
    found[LONGER] = refined(found[SECANT], replaced, MANY)
    found[FROM_RANDOM] = refined(mean_scores("random"), replaced, MANY)
    start, random = jnp.asarray(by_rank(found[SECANT]), replaced.dtype), np.random.default_rng(0)
    clean, _ = differences(model, prompts)
    gradient = sum(draw_gradient(model, prompts, KIND, start, replaced, clean, random) for _ in range(STEPS))
    moved = start - STEPS * RATE * gradient / jnp.abs(gradient).max()
    found[ONE_STEP] = np.asarray(moved - moved.min() + 1)
    return found


def piece(model: duat.models.Transformer, tokenizer: Any, task: str, optimised: int, measured: int) -> dict[str, Any]:
    """Return the logit differences of one circuit of every ranking and size on one task, the empty one last."""
    began = time.perf_counter()
    drawn = draw(model, task, optimised + measured, seed=SEED)
    prompts, others = drawn.prompts, range(optimised, optimised + measured)
    clean, corrupted = (np.asarray(each, np.float64) for each in differences(model, prompts))
    replaced = jnp.stack([values(model, ids, KIND) for ids in prompts.corrupted])
    means = jnp.broadcast_to(replaced[:optimised].mean(0), replaced.shape)
    tests = {
        OWN: (others, replaced, False),
        REMOVED: (others, replaced, True),
        OTHER: (others, jnp.roll(replaced, 1, 0), False),
        MEANS: (others, means, False),
        SAME: (range(measured), replaced, False),
    }
    runs: Runs = {}
    for name, ranking in rankings(model, row(prompts, slice(optimised)), replaced[:optimised]).items():
        circuits = top(ranking)
        live = jnp.asarray(np.concatenate([circuits, np.zeros_like(circuits[:1])]))
        runs[name] = {
            test: np.round([run(model, row(prompts, i), KIND, live != flip, given[i]) for i in which], DIGITS).tolist()
            for test, (which, given, flip) in tests.items()
            if name in EVERYWHERE or test in (OWN, REMOVED)
        }
    return {
        "read": drawn.read,
        "tokens": prompts.clean.shape[1],
        "seconds": time.perf_counter() - began,
        "clean": np.round(clean, DIGITS).tolist(),
        "corrupted": np.round(corrupted, DIGITS).tolist(),
        "runs": runs,
    }


def statistic(task: dict[str, Any], ranking: str, test: str, name: str) -> float:
    """Return a statistic of a ranking's circuits over all sizes on one task."""
    # `f` is 1 for the model on the clean text and 0 for the model on the corrupted one; where units are set to other
    # values, 0 for the empty circuit.
    measured = np.array(task["runs"][ranking][test])
    part = slice(len(measured)) if test == SAME else slice(-len(measured), None)
    zero = measured[:, -1] if test in (OTHER, MEANS) else np.array(task["corrupted"])[part]
    curve = Curve(np.array(task["clean"])[part], zero, measured[:, :-1], measured[:, :-1])
    return STATISTICS[name](faithfulness(curve, curve.kept))


def over_tasks(tasks: dict[str, Any], ranking: str, test: str, name: str) -> Float[np.ndarray, "tasks"]:
    """Return a statistic on each task; of the ranking in twenty steps the mean over two seeds of the draws."""
    draws = [ranking, *([SECOND] if ranking == FIRST and test in (OWN, REMOVED) else [])]
    return np.mean([[statistic(task, each, test, name) for task in tasks.values()] for each in draws], 0)


PLAIN, COUNTED = STATISTICS


def leads(tasks: dict[str, Any]) -> dict[str, IntervalEstimate]:
    """Return by how much the refined ranking is ahead: over tasks, with intervals of 95 %."""

    def lead(ranking: str, test: str, name: str, first: str = FIRST) -> IntervalEstimate:
        return students_mean(over_tasks(tasks, first, test, name) - over_tasks(tasks, ranking, test, name))

    # Of one draw alone, as the prompts that were optimised on are measured with one.
    own, other = (
        np.array(
            [statistic(task, FIRST, test, PLAIN) - statistic(task, SECANT, test, PLAIN) for task in tasks.values()]
        )
        for test in (SAME, OWN)
    )
    return {
        **{f"over {ranking}": lead(ranking, OWN, PLAIN) for ranking in (*RIVALS, SIGNED, FROM_RANDOM)},
        **{f"over {ranking}, overshoot counted": lead(ranking, OWN, COUNTED) for ranking in RIVALS},
        **{f"over {ranking}, {test}": lead(ranking, test, COUNTED) for ranking in SCORES for test in (OTHER, MEANS)},
        "over secant, removed": lead(SECANT, REMOVED, PLAIN),
        "of sixty steps over twenty": lead(FIRST, OWN, PLAIN, LONGER),
        "of the secant over random with sixty steps": lead(FROM_RANDOM, OWN, PLAIN, SECANT),
        "on the same prompts, beyond that on others": students_mean(own - other),
    }


def decided(least: Sequence[IntervalEstimate], yes: str, no: str) -> str:
    """Return what follows if all intervals lie above zero, if one lies below, and else."""
    if all(each.low > 0 for each in least):
        return yes
    return no if any(each.high < 0 for each in least) else "not shown"


def verdicts(found: dict[str, IntervalEstimate]) -> dict[str, str]:
    """Return what was decided by the rules of the page."""
    ahead = decided([found["over secant"], found["over secant, overshoot counted"]], "confirmed", "refuted")
    by_optimising = decided([found[f"over {ranking}"] for ranking in RIVALS[1:]], "confirmed", "refuted")
    if ahead != "confirmed" and by_optimising == "confirmed":
        by_optimising = "not shown"
    if ahead == "confirmed" and found["over secant"].value < PREDICTED:
        ahead = "confirmed, smaller than predicted"
    return {
        "ahead": ahead,
        "by optimising": by_optimising,
        "other values": decided(
            [found[f"over secant, {test}"] for test in (OTHER, MEANS)], "confirmed", "made for this test"
        ),
        "scores needed": decided([found["of the secant over random with sixty steps"]], "confirmed", "refuted"),
        "number alone": decided([found["over secant, removed"]], "confirmed", "refuted"),
    }


def tables_of(tasks: dict[str, Any]) -> str:
    """Return the tables of the documentation page."""
    found = leads(tasks)

    def write_lead(ranking: str, test: str, name: str = PLAIN) -> str:
        return (
            f"{over_tasks(tasks, ranking, test, name).mean():.3f}" if test in tasks[TASKS[0]]["runs"][ranking] else ""
        )

    rows = [
        [
            ranking,
            *(
                write_lead(ranking, *column)
                for column in ((OWN,), (OWN, COUNTED), (REMOVED,), (OTHER, COUNTED), (MEANS, COUNTED))
            ),
        ]
        for ranking in (*SCORES, SIGNED, FIRST, LONGER, ONE_STEP, FROM_RANDOM)
    ]
    by_task = [
        [
            name,
            *(f"{statistic(task, ranking, OWN, PLAIN):.3f}" for ranking in (SECANT, FIRST, LONGER)),
            str(task["read"]),
            str(task["tokens"]),
        ]
        for name, task in tasks.items()
    ]
    return "\n".join(
        [
            *("#### Verdicts on refined circuits", ""),
            *table(["rule", "verdict"], [[rule, verdict] for rule, verdict in verdicts(found).items()]),
            *("", "#### Leads, of twenty steps where nothing else is said", ""),
            *table(["lead", "logf"], [[name, lead.written(sign="+")] for name, lead in found.items()]),
            *("", "#### Refined circuits", ""),
            *table(["ranking", "kept", "overshoot counted", "removed", "another's text", "means"], rows),
            *("", "#### Refined circuits of each task", ""),
            *table(["task", SECANT, FIRST, LONGER, "read", "tokens"], by_task),
        ]
    )


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation page."""
    text = tables_of(results["tasks"])
    return {"tables": text, **cells(text)}


def main() -> None:
    """Run the tasks that aren't kept, and store the results."""
    model, tokenizer = duat.load(smollm2.path()), duat.load_tokenizer(smollm2.path())
    asked = {
        "steps": [STEPS, MANY],
        "scores": SCORES,
        "prompts": [OPTIMISED, MEASURED],
        "seed": SEED,
        "rate": RATE,
        "fractions": FRACTIONS,
    }
    journal = journal_of("refined", {"asked": asked})
    tasks = {
        task: journal.once(task, partial(piece, model, tokenizer, task, OPTIMISED, MEASURED))
        for task in track(TASKS, "Tasks")
    }
    results = {"asked": asked, "tasks": tasks}
    store("refined", results)
