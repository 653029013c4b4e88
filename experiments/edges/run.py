"""Question: which scores of edges find the smallest circuits that keep a task's effect?

Run `python -m experiments edges`; it writes experiments/results/edges.json and the tables in
docs/findings/circuits.md, whose
section on edges states beforehand what decides.  A task that a killed run has finished isn't run again.
"""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from rich.progress import track

import duat_jax as duat
from duat_jax.attribution.masks import FIRST, integrated_gradients, parts_of_secant, scored_twice
from duat_jax.attribution.unit_values import mean_over_steps
from duat_jax.evaluation.circuit_curve import FRACTIONS
from duat_jax.evaluation.circuits import top
from duat_jax.evaluation.statistics import IntervalEstimate
from duat_jax.forms.secant import secant
from duat_jax.inputs.prompts import Prompt
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION
from experiments import kept_results, smollm2
from experiments.edges.network import edges_of, sent_by, with_added, with_mask
from experiments.kept_results import journal_of, store
from experiments.markdown import Fields, cells, table
from experiments.rivals.backward import DEEPLIFT, TEMPERATURE, gim_rules
from experiments.rivals.network import Rules
from experiments.task_curves import AHEAD, by_task, compared, leads_by_students_t, measured

NEW = ("opposite", "comparative", "successor", "repetition", "bracket", "tense", "property", "colour")
KNOWN = ("capital", "language", "agreement", "indirect object", "greater than", "pronoun")
"""Tasks whose circuits of neurons had been seen when the first method was chosen; edges of none had been scored."""
GROUPS = {"new": NEW, "known": KNOWN}
PROMPTS, SEED = 8, 2

Scores = Callable[[Transformer, Prompt], Float[Array, "edges"]]
"""From a model and one prompt to the score of each edge."""


def _over_masks(scorer: Callable[[Callable[[Array], Array], Array, Array], Array], *, again: bool = False) -> Scores:
    """Return the scores by a function of two masks; `again` with the largest live, all others scored once more."""

    def scores(model: Transformer, prompt: Prompt) -> Array:
        x, corrupted = model.embed(prompt.clean), sent_by(model, model.embed(prompt.corrupted))
        number = with_mask(model, x, corrupted, prompt.right, prompt.wrong)
        ones = jnp.ones(np.count_nonzero(edges_of(model.config)), x.dtype)
        if again:
            return scored_twice(scorer, number, ones, jnp.ones(1, bool))
        return scorer(number, ones, jnp.zeros_like(ones))

    return scores


def _of_texts(coefficient: Callable[[Callable[[Any], Array], Array, Array, Array], Array]) -> Scores:
    """Return the scores `⟨C_r, h_s - c_s⟩`, with each receiver's coefficient `C_r` from runs on texts."""

    def scores(model: Transformer, prompt: Prompt) -> Array:
        edges = edges_of(model.config)
        x, y = model.embed(prompt.clean), model.embed(prompt.corrupted)
        change = sent_by(model, x) - sent_by(model, y)
        nothing = jnp.zeros((len(edges), *x.shape), x.dtype)
        of_receivers = coefficient(with_added(model, prompt.right, prompt.wrong), x, y, nothing)
        return jnp.einsum("rtd,std->rs", of_receivers, change, precision=PRECISION)[np.nonzero(edges)]

    return scores


def _gradient(number: Callable[[Any], Array], x: Array, y: Array, nothing: Array) -> Array:
    return jax.grad(lambda added: number((x, added)))(nothing)


def _mean_gradient(number: Callable[[Any], Array], x: Array, y: Array, nothing: Array, *, steps: int) -> Array:
    return mean_over_steps(steps, x.dtype, lambda t: _gradient(number, y + t * (x - y), y, nothing))


def _multiplier(number: Callable[[Any], Array], x: Array, y: Array, nothing: Array) -> Array:
    return secant(number)((x, nothing), (y, nothing)).multiplier[1]


def _with_rules(rules: Rules) -> Scores:
    """Return the scores `⟨C_r, h_s - c_s⟩`, with receivers' coefficients by other ways back at the clean text."""

    def scores(model: Transformer, prompt: Prompt) -> Array:
        return _of_receivers(model, prompt, model.embed(prompt.clean)[None], rules)

    return scores


def _deeplift(model: Transformer, prompt: Prompt) -> Array:
    return _of_receivers(model, prompt, jnp.stack([model.embed(prompt.clean), model.embed(prompt.corrupted)]), DEEPLIFT)


def _of_receivers(model: Transformer, prompt: Prompt, rows: Array, rules: Rules) -> Array:
    """Return the scores by a way back on rows of texts, of which the first is the clean one."""
    edges = edges_of(model.config)
    number = with_added(model, prompt.right, prompt.wrong, rules)
    coefficients = jax.grad(lambda added: number((rows, added)))(jnp.zeros((len(edges), *rows.shape), rows.dtype))
    change = sent_by(model, model.embed(prompt.clean)) - sent_by(model, model.embed(prompt.corrupted))
    return jnp.einsum("rtd,std->rs", coefficients[:, 0], change, precision=PRECISION)[np.nonzero(edges)]


def _random(model: Transformer, prompt: Prompt) -> Array:
    key = jax.random.fold_in(jax.random.key(0), jnp.polyval(prompt.clean, 31))
    return jax.random.normal(key, (int(edges_of(model.config).sum()),))


OURS = "secant over masks, twice"
AHEAD_OF_OTHERS = OURS, "secant"
"""The methods whose leads over the others stand in the tables; what decides are those of the first."""
METHODS: dict[str, tuple[Scores, int]] = {
    OURS: (_over_masks(parts_of_secant, again=True), 8),
    "secant over masks": (_over_masks(parts_of_secant), 5),
    "integrated gradients over masks, 2 steps": (_over_masks(partial(integrated_gradients, steps=2)), 7),
    "gradient at half masks, twice": (_over_masks(partial(integrated_gradients, steps=1), again=True), 7),
    "integrated gradients over masks, 5 steps": (_over_masks(partial(integrated_gradients, steps=5)), 16),
    "secant": (_of_texts(_multiplier), 4),
    "gradient x change": (_of_texts(_gradient), 4),
    "integrated gradients, 2 steps": (_of_texts(partial(_mean_gradient, steps=2)), 8),
    "integrated gradients, 5 steps": (_of_texts(partial(_mean_gradient, steps=5)), 17),
    "GIM": (_with_rules(gim_rules(TEMPERATURE)), 4),
    "DeepLIFT": (_deeplift, 6),
    "random": (_random, 0),
}
"""The scores of each method, and its cost by counting, in forward passes, a gradient's way back being two."""


@partial(jax.jit, static_argnames="scores")
def scored(scores: Scores, model: Transformer, prompt: Prompt) -> Float[Array, "edges"]:
    """Return the score of each edge."""
    return scores(model, prompt)


@jax.jit
def kept(model: Transformer, prompt: Prompt, live: Float[Array, "runs edges"]) -> Float[Array, "runs"]:
    """Return the logit difference with only some edges live, and what others carry taken from the corrupted text."""
    x, corrupted = model.embed(prompt.clean), sent_by(model, model.embed(prompt.corrupted))
    return jax.lax.map(with_mask(model, x, corrupted, prompt.right, prompt.wrong), live)


def _piece(model: Transformer, tokenizer: Any, task: str, count: int, methods: Iterable[str]) -> dict[str, Any]:
    """Return the logit differences of methods on one task."""

    def of_prompt(i: int, prompt: Prompt) -> dict[str, Any]:
        def run(scores: Scores) -> Array:
            return kept(model, prompt, jnp.asarray(top(np.asarray(scored(scores, model, prompt))), jnp.float32))

        return {method: run(METHODS[method][0]) for method in methods}

    return measured(model, tokenizer, task, count, SEED, of_prompt)


def summary(tasks: dict[str, Any]) -> dict[str, Any]:
    """Return of each method its statistics on the new tasks and on the known ones, and by how much others are ahead."""
    alone = by_task(tasks)
    found: dict[str, Any] = {
        method: {"passes": passes, "by task": alone[method]} for method, (_, passes) in METHODS.items()
    }
    for group, names in GROUPS.items():
        if of_group := [tasks[name] for name in tasks if name in names]:
            leads = {first: compared(of_group, first) for first in AHEAD_OF_OTHERS}
            for method, of in found.items():
                ahead = {first: of_first[method][AHEAD] for first, of_first in leads.items()}
                of[group] = leads[OURS][method] | {AHEAD: ahead}
    return found


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    methods, tasks = results["methods"], results["tasks"]
    texts = []
    for group in GROUPS:
        ranked = sorted(methods, key=lambda name: -methods[name][group]["logf"]["value"])

        def row(name: str, group: str = group) -> list[str]:
            of = methods[name][group]
            leads = [
                IntervalEstimate(**of[AHEAD][first]).written(sign="+") if name != first else ""
                for first in AHEAD_OF_OTHERS
            ]
            numbers = [f"{of[statistic]['value']:.3f}" for statistic in ("logf", "CPR", "CMD")]
            return [name, str(methods[name]["passes"]), numbers[0], *leads, *numbers[1:]]

        head = ["scores", "passes", "logf", *(f"{first} is ahead by" for first in AHEAD_OF_OTHERS), "CPR", "CMD"]
        texts += [f"#### Edges, {group} tasks", "", *table(head, map(row, ranked)), ""]
    of_tasks = [[name, *(f"{number:.3f}" for number in of["by task"].values())] for name, of in methods.items()]
    text = "\n".join([*texts, "#### Edges, each task", "", *table(["logf", *tasks], of_tasks)])
    return {"tables": text, **cells(text), **_by_students_t(methods), **_by_size(tasks)}


def _by_students_t(methods: dict[str, Any]) -> Fields:
    found: Fields = {}
    for group, names in GROUPS.items():
        alone = {name: [of["by task"][task] for task in names] for name, of in methods.items()}
        leads = leads_by_students_t(alone, AHEAD_OF_OTHERS)
        found |= {name + ("" if group == "new" else f", {group} tasks"): lead for name, lead in leads.items()}
    return found


def _by_size(tasks: dict[str, Any]) -> Fields:
    """Return the share of the effect that circuits of two sizes keep on the new tasks."""

    def share(method: str, size: int) -> str:
        shares = []
        for task in NEW:
            clean, corrupted = (np.array(tasks[task][which]) for which in ("clean", "corrupted"))
            kept = np.array(tasks[task]["runs"][method])[:, size]
            shares.append((kept.mean() - corrupted.mean()) / (clean.mean() - corrupted.mean()))
        return f"{np.mean(shares):.3f}"

    sizes = {"half a per cent": FRACTIONS.index(FIRST), "one per cent": FRACTIONS.index(0.01)}
    return {
        f"{name}, {method}": share(method, size) for name, size in sizes.items() for method in tasks[NEW[0]]["runs"]
    }


def main() -> None:
    """Run the tasks that aren't kept, and store the results."""
    model, tokenizer = duat.load(smollm2.path(), scanned=True), duat.load_tokenizer(smollm2.path())
    asked = {"prompts": PROMPTS, "seed": SEED, "fractions": FRACTIONS}
    journal = journal_of("edges", {"asked": asked})
    known = kept_results.kept("edges")
    same = known.get("asked") == json.loads(json.dumps(asked))
    tasks: dict[str, Any] = {}
    for task in track([*NEW, *KNOWN], "Tasks"):
        before = known["tasks"].get(task, {}) if same else {}
        runs = before.get("runs", {})
        missing = [method for method in METHODS if method not in runs]
        if missing:
            name = f"{task}: {', '.join(missing)}"
            found = journal.once(name, partial(_piece, model, tokenizer, task, PROMPTS, missing))
            before, runs = before or found, runs | found["runs"]
        tasks[task] = {**before, "runs": {method: runs[method] for method in METHODS}}
    results = {
        "asked": asked,
        "edges": int(np.count_nonzero(edges_of(model.config))),
        "methods": summary(tasks),
        "tasks": tasks,
    }
    store("edges", results)
