"""Question: do the secant and the secant over masks find smaller circuits than the field's other methods?

Run `python -m experiments rivals`; it writes experiments/results/rivals.json and the tables in
docs/findings/circuits.md, whose
section on other methods states beforehand what decides.  A task that a killed run has finished isn't run again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from rich.progress import track

import duat_jax as duat
from duat_jax.attribution import units as of_texts
from duat_jax.attribution.masks import parts_of_secant, twice
from duat_jax.attribution.unit_values import Read, Scores, UnitValues
from duat_jax.evaluation import circuits
from duat_jax.evaluation.circuit_curve import FRACTIONS
from duat_jax.evaluation.circuits import UNITS, Method, on_prompts, run, scores_of, top, values
from duat_jax.evaluation.statistics import IntervalEstimate, agreement
from duat_jax.inputs.prompts import Prompt
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.kept_results import journal_of, store
from experiments.markdown import Fields, cells, table
from experiments.rivals.atp import atp_star
from experiments.rivals.backward import deeplift, gim
from experiments.rivals.patching import effects, sampled
from experiments.rivals.paths import eap_gp, mean_of_gradients
from experiments.task_curves import AHEAD, DIGITS, by_task, compared, leads_by_students_t, measured

TASKS = ("opposite", "comparative", "successor", "repetition", "bracket", "tense", "property", "colour")
PROMPTS, SEED = 12, 3
SAMPLE = 128
"""The number of units of each prompt that are patched one at a time."""
OURS = "secant over masks, twice", "secant"
KIND = UNITS["neuron x position"]
ALL = "Other methods, all tasks"
"""The heading of the table of all methods."""


def of_rule(rule: Callable[[Transformer, Read, Array, Array], UnitValues]) -> Method:
    """Return the method on prompts of a rule that scores the entries of units."""

    def scores(model: Transformer, read: Read, x: Array, y: Array, real: Array) -> Scores:
        found = rule(model, read, x, y)
        return Scores(found.neurons, found.heads.sum(-1), None)

    return on_prompts(scores)


METHODS: dict[str, tuple[Method, int]] = {
    OURS[0]: (on_prompts(twice(parts_of_secant)), 8),
    **{
        name: (on_prompts(of_texts.METHODS[name].rule), passes)
        for name, passes in {
            OURS[1]: 4,
            "gradient x change": 4,
            "integrated gradients, 2 steps": 8,
            "integrated gradients, 5 steps": 17,
            "integrated gradients, 10 steps": 32,
            "integrated gradients, layer by layer": 452,
        }.items()
    },
    "mean of both gradients": (of_rule(mean_of_gradients), 6),
    "EAP-GP, 5 steps": (of_rule(partial(eap_gp, steps=5)), 33),
    "AtP*": (of_rule(atp_star), 65),
    "GIM": (gim, 4),
    "DeepLIFT": (deeplift, 6),
    "random": (circuits.METHODS["random"], 0),
}
"""The scores of each method, and its cost by counting, in forward passes over one text for the scores of neurons of
SmolLM2's 30 layers, a gradient's way back being two."""


def _piece(model: Transformer, tokenizer: Any, task: str, count: int) -> dict[str, Any]:
    """Return the logit differences of every method on one task, and its scores' rank correlation with exact effects."""
    correlations: dict[str, list[float]] = {method: [] for method in METHODS}

    def of_prompt(i: int, prompt: Prompt) -> dict[str, Any]:
        alone = jax.tree.map(lambda leaf: leaf[None], prompt)
        replaced = values(model, prompt.corrupted, KIND)
        sample = sampled(values(model, prompt.clean, KIND) - replaced, SAMPLE, seed=i)
        exact = np.abs(effects(model, prompt, KIND, sample))
        runs = {}
        for method, (scorer, _) in METHODS.items():
            (found,) = scores_of(scorer, model, alone, (KIND,))
            scores = np.asarray(found)[0]
            runs[method] = run(model, prompt, KIND, jnp.asarray(top(scores)), replaced)
            of_sample = np.abs(scores.ravel()[np.asarray(sample)])
            correlations[method].append(round(agreement(of_sample, exact)[0], DIGITS))
        return runs

    return {**measured(model, tokenizer, task, count, SEED, of_prompt), "correlations": correlations}


def summary(tasks: dict[str, Any]) -> dict[str, Any]:
    """Return of each method its statistics over tasks, and by how much each of ours is ahead."""
    pieces, alone = list(tasks.values()), by_task(tasks)
    found = {ours: compared(pieces, ours) for ours in OURS}
    return {
        method: {
            "passes": passes,
            "by task": alone[method],
            **{name: found[OURS[0]][method][name] for name in ("logf", "CPR", "CMD")},
            "ahead": {ours: found[ours][method][AHEAD] for ours in OURS},
            "correlation": float(np.mean([np.mean(task["correlations"][method]) for task in pieces])),
        }
        for method, (_, passes) in METHODS.items()
    }


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    methods = results["methods"]
    ranked = sorted(methods, key=lambda name: -methods[name]["logf"]["value"])

    def cells_of(name: str) -> list[str]:
        of = methods[name]
        leads = ["" if name == ours else IntervalEstimate(**of["ahead"][ours]).written(sign="+") for ours in OURS]
        numbers = [f"{of[statistic]['value']:.3f}" for statistic in ("logf", "CPR", "CMD")]
        return [name, str(of["passes"]), numbers[0], *leads, *numbers[1:], f"{of['correlation']:.2f}"]

    head = ["scores", "passes", "logf", *(f"{ours} is ahead by" for ours in OURS), "CPR", "CMD", "rank correlation"]
    of_tasks = [[name, *(f"{number:.3f}" for number in methods[name]["by task"].values())] for name in ranked]
    all_tasks, each_task = table(head, map(cells_of, ranked)), table(["logf", *results["tasks"]], of_tasks)
    text = "\n".join([f"#### {ALL}", "", *all_tasks, "", "#### Other methods, each task", "", *each_task])
    alone = {name: list(of["by task"].values()) for name, of in methods.items()}
    return {"tables": text, **cells(text), **leads_by_students_t(alone, OURS)}


def main() -> None:
    """Run the tasks that aren't kept, and store the results."""
    model, tokenizer = duat.load(smollm2.path()), duat.load_tokenizer(smollm2.path())
    asked = {"methods": list(METHODS), "prompts": PROMPTS, "seed": SEED, "sample": SAMPLE, "fractions": FRACTIONS}
    journal = journal_of("rivals", {"asked": asked})
    tasks = {
        task: journal.once(task, partial(_piece, model, tokenizer, task, PROMPTS)) for task in track(TASKS, "Tasks")
    }
    results = {"asked": asked, "methods": summary(tasks), "tasks": tasks}
    store("rivals", results)
