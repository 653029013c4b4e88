"""Do neurons that the secant ranks first carry more of a task than those that integrated gradients rank first?

A task draws pairs of texts from a seed: a clean one and a corrupted one, in which the words that decide between two
answers are exchanged. A pair is kept if the model prefers the right answer after the clean text and the wrong one
after the corrupted text. The metric m is the logit of the right answer minus that of the wrong one, at the last token.
Seven tasks: the indirect object, agreement of subject and verb, capitals, languages, years that are greater than
others, pronouns (SmolLM2-135M-Instruct), and parameters of functions (the embedded model).

A method scores every unit of a prompt. The circuit of size k consists of the units with the largest scores by absolute
value, k from 0.1 to 50 % of all units; the model is run on the clean text with every other unit set to its value on
the corrupted text. The share of the effect that a circuit keeps is f(k) = (m(k) - m_corrupted) / (m_clean -
m_corrupted), each the mean over prompts first: 1 is the model. Since embeddings stay clean, an empty circuit is near 0
and not at it. Reported is logf, the mean of f over log k, in which small circuits count as much as large ones; CPR and
CMD are the areas under f and |1 - f| over k, as in the Mechanistic Interpretability Benchmark, in which large circuits
dominate. "Removed" is logf with the circuit corrupted and everything else computed: the lower, the better.

Units are neurons at tokens, and for one task neurons at all tokens, heads at tokens, and streams at tokens. Among the
methods, gradient x change is attribution patching (EAP), and integrated gradients are EAP-IG (Hanna et al., 2024).
Intervals are over tasks, and where there is one task over its prompts, with shares of the mean effect; leads are
paired, and those of one table hold together. The texts of a task share their words, so that intervals over prompts are
about these prompts and not about all texts.
"""

from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

import duat_jax as duat
from benchmarks import attribution
from duat_jax.display.pictures import styled
from duat_jax.evaluation.circuit_study import study
from duat_jax.evaluation.circuits import METHODS
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.estimate import estimate
from experiments.kept_results import kept
from experiments.pictures.panels import colours, dots
from experiments.run import frames_of
from experiments.study import Measurements, Picture, Piece, Prediction, Row, Study
from experiments.table import rows_of
from experiments.task_curves import (
    KEPT,
    PLAIN,
    REMOVED,
    lead_of,
    mean_of,
    rows_of_runs,
    table_of_methods,
    with_statistics,
)
from experiments.verdict import above

NEURONS, AGREEMENT = "neuron x position", "agreement"
SECANT, GRADIENTS = PAIR = ("secant", "integrated gradients, 10 steps")
RIVALS = (
    SECANT,
    "secant, two half-steps",
    "secant, patterns held",
    "collapse x change",
    GRADIENTS,
    "gradient x change",
)


class Comparison(NamedTuple):
    """Settings of one comparison.

    Args:
        model: which model.
        tasks: names of tasks.
        methods: names of methods.
        units: names of kinds of units.
        prompts: how many of each task.
    """

    model: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    units: tuple[str, ...]
    prompts: int


SMOLLM2, EMBEDDED = "SmolLM2-135M-Instruct", "The embedded model"
OF_LANGUAGE = "indirect object", AGREEMENT, "capital", "language", "greater than", "pronoun"
OF_TEXTS = tuple(method for method in METHODS if "over masks" not in method)
"""The methods that move from text to text; those over masks have a study of their own."""
EVERY, HUNDRED, OTHER, CODE = "Every method", "A hundred prompts", "Other units", "A code task"
COMPARISONS = {
    EVERY: Comparison(SMOLLM2, OF_LANGUAGE, OF_TEXTS, (NEURONS,), 30),
    HUNDRED: Comparison(SMOLLM2, OF_LANGUAGE, PAIR, (NEURONS,), 100),
    OTHER: Comparison(SMOLLM2, (AGREEMENT,), RIVALS, ("neuron", "head x position", "layer x token"), 30),
    CODE: Comparison(EMBEDDED, ("parameter",), OF_TEXTS, (NEURONS, "head x position"), 100),
}


def rows_on_task(model: Transformer, asked: Comparison, task: str) -> list[Row]:
    """Return the runs of every method's circuits on one task, kept and removed."""

    def silent(task: str) -> Any:
        return nullcontext(lambda done, of: None)

    found = study(model, [task], asked.methods, asked.units, prompts=asked.prompts, progress=silent)
    return [
        {"units": kind, **of}
        for kind, methods in found.curves[task].items()
        for method, curve in methods.items()
        for of in rows_of_runs(
            found.drawn[task],
            curve.clean,
            curve.corrupted,
            {(method, KEPT): curve.kept, (method, REMOVED): curve.removed},
        )
    ]


def measure() -> Measurements:
    """Yield every task of every comparison."""
    for name, asked in COMPARISONS.items():
        model = duat.load(smollm2.path() if asked.model == SMOLLM2 else None)
        for task in asked.tasks:
            keys = {"comparison": name, "task": task}
            yield Piece("circuits", keys, partial(rows_on_task, model, asked, task))


def of_all_tasks(circuits: pd.DataFrame) -> pd.DataFrame:
    """Return the circuits of neurons by two methods, of all seven tasks with a hundred prompts each."""
    kept = rows_of(circuits, units=NEURONS, test=KEPT)
    return kept[kept.comparison.isin((HUNDRED, CODE)) & kept.method.isin(PAIR)].assign(comparison="")


COST = "costs / {} / plain forward passes [quartiles] / value"


def kept_and_cost() -> dict[str, Any]:
    """Return every method's cost, and how much of the effect its circuits of neurons keep."""
    circuits, costs = frames_of("circuits")["circuits"], attribution.fields(kept("attribution"))
    rows = rows_of(circuits, comparison=EVERY, test=KEPT)
    return {
        method: [float(costs[COST.format(method)]), *(round(float(number), 3) for number in estimate(of[PLAIN])[:3])]
        for method, of in with_statistics(rows).groupby("method", sort=False)
        if COST.format(method) in costs
    }


@styled
def draw_circuits(numbers: dict[str, Any]) -> Figure:
    """Draw every method's cost and how much of the effect its circuits keep."""
    figure = Figure(figsize=(8.6, 4.2))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    order = sorted(numbers, key=lambda method: -numbers[method][1])
    dots(left, {method: numbers[method][1:] for method in order}, colours(order))
    left.set_xlabel("effect that circuits keep, mean over six tasks (logf)")
    costs = {method: numbers[method][:1] * 3 for method in order}
    dots(right, costs, colours(order), marker="s")
    right.set_xscale("log")
    right.set_xlim(1.5, None)
    right.set_xlabel("cost in plain forward passes")
    return figure


LEAD = lead_of(of_all_tasks, SECANT, GRADIENTS, digits=4)

STUDY = Study(
    protocol=__doc__,
    page="circuits",
    claim="none: attribution patching and EAP-IG search circuits by gradients; the secant is this package's",
    unit="tasks",
    stated="after the run",
    predictions=(
        Prediction(
            "the secant's circuits of neurons keep more than those of integrated gradients with ten steps",
            "confirmed if the interval of the lead over tasks is above zero, refuted if it is below",
            (LEAD,),
            above,
        ),
    ),
    control=mean_of(of_all_tasks, GRADIENTS),
    headline="Circuits of neurons by the secant keep {outcome} more of a task's effect than those by integrated"
    " gradients with ten steps, which keep a share of {control} ({n} tasks).",
    against="Among thirteen leads at once not even collapse x change, which reads one text, can be told from the secant"
    " ({Every method / collapse x change / secant is ahead by}).",
    limits="Seven tasks, of two models, written and not drawn; a known corrupted text.",
    tables={
        "All seven tasks": table_of_methods([SECANT], 1, of_all_tasks, passes=False),
        "Every method": table_of_methods(
            [SECANT], len(OF_TEXTS) - 1, partial(rows_of, comparison=EVERY, test=KEPT), passes=False
        ),
    },
    pictures={
        "circuits": Picture(
            kept_and_cost,
            draw_circuits,
            "Left: the effect that circuits keep, by method. Right: the cost of the scores. Red: this package.",
        )
    },
    measure=measure,
    settings={name: asked._asdict() for name, asked in COMPARISONS.items()},
)
