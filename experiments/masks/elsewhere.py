"""Are circuits of heads by secants over masks ahead of those by each score of texts?

The study "masks" has eight tasks, neurons, one model, and units set to their values on the corrupted text. Here the
same circuits are measured in further settings. "Heads": heads at tokens, SmolLM2-135M, the eight tasks and six of
language, 32 prompts each; heads had not been scored over masks on any of them. "Means": neurons at tokens, the same
fourteen tasks; units that aren't in a circuit are set to their means over the corrupted texts of 64 other prompts.
Every score is told this: those over masks are made with the means, those of texts multiply their coefficients with h -
mean. The share is 0 for the empty circuit. "Crossed": the circuits of "means", run with the own corrupted text's
values, which their scores weren't told. "Known tasks": neurons, the six tasks of language, a hundred prompts each;
four had served for choosing the first score and all had been seen, so nothing is decided by them. "Code": the embedded
model's one task, a hundred prompts, neurons and heads.

What decides was stated before the run, with intervals by Student's t over tasks: those of the three scores of texts
hold together, and so do those of the two gradients over masks. The leads are also given without the four tasks that
had served for choosing, and in "means" without tasks in which clean text and empty circuit are less than half as far
apart as both texts.

"Optimised on one prompt": one prompt of each of the fourteen tasks, the ranking by the first score optimised on that
prompt alone in 60 steps, beside the scores' own, with what is beyond the model counted against it, the better of start
and end for each prompt. It is a lower bound of what circuits of this kind can keep.
"""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

import duat_jax as duat
from duat_jax.evaluation.circuit_curve import FRACTIONS
from duat_jax.evaluation.circuits import UNITS, UnitKind, run, top, values
from duat_jax.evaluation.refined_ranking import refine
from duat_jax.inputs.prompts import Prompt, draw
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.estimate import Estimate, estimate
from experiments.masks.elsewhere_scores import FIRST, GRADIENTS, METHODS, OPTIMISED, Scores
from experiments.study import Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Table, rows_of
from experiments.task_curves import (
    COUNTED,
    KEPT,
    KNOWN,
    NEW,
    PASSES,
    PLAIN,
    RULE,
    ahead,
    lead_of,
    measured,
    stated_leads,
    with_leads,
    with_statistics,
)
from experiments.verdict import Verdict, decide, together

SMOLLM2, EMBEDDED = "SmolLM2-135M", "embedded"
SEED, OTHERS, STEPS = 5, 64, 60
"""The seed of the prompts, the number of other prompts whose texts means are taken over, and the steps of a ranking
that is optimised on one prompt."""


class Setting(NamedTuple):
    """A setting of the study.

    Args:
        model: which model.
        tasks: names of tasks.
        kind: a name in `UNITS`.
        prompts: the number of prompts of each task.
        means: whether units that aren't live have their means over other prompts' corrupted texts; the circuits are
            then also run with the own corrupted text's values, which their scores don't know.
    """

    model: str
    tasks: tuple[str, ...]
    kind: str
    prompts: int
    means: bool = False


CROSSED, EMPTY = "crossed", "empty"
NEURONS, HEADS = "neuron x position", "head x position"
SETTINGS = {
    "heads": Setting(SMOLLM2, NEW + KNOWN, HEADS, 32),
    "means": Setting(SMOLLM2, NEW + KNOWN, NEURONS, 32, means=True),
    "known tasks": Setting(SMOLLM2, KNOWN, NEURONS, 100),
    "code, neurons": Setting(EMBEDDED, ("parameter",), NEURONS, 100),
    "code, heads": Setting(EMBEDDED, ("parameter",), HEADS, 100),
}
REFINED = f"optimised, {STEPS} steps"
TEXTS = tuple(name for name in METHODS if name not in (FIRST, *GRADIENTS))
SECANT = "secant"
STATED, LEVEL = 0.03, 0.02
"""The lead that was predicted, and below what a difference counts as level."""
CHOSEN_ON = "capital", "language", "agreement", "indirect object"
"""The tasks on which the first score had been chosen."""


@partial(jax.jit, static_argnames=("scores", "kind"))
def scored(
    scores: Scores, model: Transformer, prompt: Prompt, kind: UnitKind, replaced: Float[Array, "layers tokens *unit"]
) -> Array:
    """Return the score of each unit."""
    return scores(model, prompt, kind, replaced)


def rows_on_task(model: Transformer, task: str, setting: Setting) -> list[Row]:
    """Return the runs of every method's circuits on one task."""
    kind, means = UNITS[setting.kind], None
    if setting.means:
        others = draw(model, task, setting.prompts + OTHERS, seed=SEED).prompts.corrupted[setting.prompts :]
        means = jax.lax.map(lambda ids: values(model, ids, kind), others).mean(0)

    def of_prompt(i: int, prompt: Prompt) -> Mapping[Any, Array]:
        own = values(model, prompt.corrupted, kind)
        given = own if means is None else means
        circuits = {
            name: jnp.asarray(top(np.asarray(scored(scores, model, prompt, kind, given))))
            for name, scores in METHODS.items()
        }
        runs: dict[Any, Array] = {name: run(model, prompt, kind, live, given) for name, live in circuits.items()}
        if means is not None:
            runs |= {(name, CROSSED): run(model, prompt, kind, live, own) for name, live in circuits.items()}
            runs[EMPTY] = run(model, prompt, kind, jnp.zeros_like(circuits[FIRST][:1]), means)
        return runs

    *rows, last = measured(model, task, setting.prompts, SEED, of_prompt)
    if means is None:
        return [*rows, last]
    return [of | {"zero": last["runs"][:, 0]} if of["test"] == KEPT else of for of in rows]


def optimised(model: Transformer, task: str) -> list[Row]:
    """Return the runs of circuits that are optimised on one prompt, beside those of two scores."""
    kind = UNITS[NEURONS]

    def of_prompt(i: int, prompt: Prompt) -> Mapping[Any, Array]:
        replaced = values(model, prompt.corrupted, kind)
        chosen = FIRST, SECANT
        found = {name: np.asarray(scored(METHODS[name], model, prompt, kind, replaced)) for name in chosen}
        alone = jax.tree.map(lambda leaf: leaf[None], prompt)
        found[REFINED] = refine(model, alone, kind, found[FIRST], replaced[None], STEPS)
        return {name: run(model, prompt, kind, jnp.asarray(top(scores)), replaced) for name, scores in found.items()}

    return measured(model, task, 1, SEED, of_prompt)


def measure() -> Measurements:
    """Yield every task of every setting."""
    load = cache(lambda name: duat.load(smollm2.path() if name == SMOLLM2 else None))
    for name, setting in SETTINGS.items():
        for task in setting.tasks:
            compute = partial(rows_on_task, load(setting.model), task, setting)
            yield Piece("circuits", {"setting": name, "task": task}, compute)
    for task in NEW + KNOWN:
        yield Piece("circuits", {"setting": OPTIMISED, "task": task}, partial(optimised, load(SMOLLM2), task))


def in_setting(setting: str, circuits: pd.DataFrame, test: str = KEPT) -> pd.DataFrame:
    """Return the circuits of a setting."""
    return rows_of(circuits, setting=setting, test=test)


def _far_apart(circuits: pd.DataFrame) -> set[str]:
    """Return the tasks in which clean text and empty circuit are at least half as far apart as both texts."""

    def effects(test: str) -> pd.Series:
        of_test = in_setting("means", circuits, test).drop_duplicates("task").set_index("task")
        return of_test.clean.map(np.mean) - of_test.zero.map(np.mean)

    found = effects(KEPT) / effects(CROSSED)
    return set(found.index[found >= 0.5])


def subsets(circuits: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the circuits of each row of the table of leads."""
    unseen, far = ~circuits.task.isin(CHOSEN_ON), circuits.task.isin(_far_apart(circuits))
    for setting in ("heads", "means"):
        yield in_setting(setting, circuits).assign(setting=setting)
        yield in_setting(setting, circuits[unseen]).assign(setting=f"{setting}, without tasks that served for choosing")
    yield in_setting("means", circuits[far]).assign(setting="means, effect at least half as large")
    yield in_setting("means", circuits, CROSSED).assign(setting="means, crossed")
    yield in_setting("known tasks", circuits).assign(setting="known tasks")


def lead_and_mean(circuits: pd.DataFrame) -> pd.DataFrame:
    """Return every method's statistics in each row of the table of leads, with the first method's leads."""
    return pd.concat(
        [with_leads(with_statistics(of), FIRST).assign(tasks=of.task.nunique()) for of in subsets(circuits)]
    )


def _held_together(rows: pd.DataFrame) -> Estimate | str:
    method = rows.method.iloc[0]
    together = len(GRADIENTS if method in GRADIENTS else TEXTS)
    return f"{rows[PLAIN].mean():.3f}" if method == FIRST else estimate(rows[ahead(FIRST)].to_numpy(), together)


def leads_in(setting: str, methods: tuple[str, ...], *statistics: str, test: str = KEPT) -> tuple[Any, ...]:
    """Return the measures of the first method's leads in a setting, of a group of methods."""
    keep = partial(in_setting, setting, test=test)
    return tuple(lead_of(keep, FIRST, of, len(methods), statistic) for statistic in statistics for of in methods)


def as_good(*leads: Estimate) -> Verdict:
    """Return whether gradients over masks do as well: they are ahead, or level within ±.02."""
    return together(
        *(decide(of.high < 0 or (of.low >= -LEVEL and of.high <= LEVEL), refuted=of.low > 0) for of in leads)
    )


def knows_the_test(told: Estimate, crossed: Estimate) -> Verdict:
    """Return whether the lead is that of having been told the corruption: it is gone where scores weren't told."""
    return decide(told.low > 0 >= crossed.low, told.low > 0 and crossed.low > 0)


JUDGED = "heads", "means"
"""The settings on which predictions are decided."""

STUDY = Study(
    protocol=__doc__,
    page="masks",
    claim="none: how far a lead of scores over masks reaches",
    unit="tasks",
    stated="before the run",
    predictions=(
        *(
            Prediction(
                f"{setting}: ahead of every score of texts by .03 or more,"
                " also with overshoot counted against circuits",
                RULE.format(".03"),
                leads_in(setting, TEXTS, PLAIN, COUNTED),
                stated_leads(STATED),
            )
            for setting in JUDGED
        ),
        *(
            Prediction(
                f"the opposite view, {setting}: gradients over masks do as well",
                "confirmed if they are ahead or the interval lies within ±.02, refuted if the secant is ahead",
                leads_in(setting, GRADIENTS, PLAIN),
                as_good,
            )
            for setting in JUDGED
        ),
        Prediction(
            "the opposite view: the lead over the secant of texts is that of having been told the corruption",
            "confirmed if it is above zero in means and not in crossed, refuted if it is above zero in both",
            tuple(leads_in("means", TEXTS, PLAIN, test=test)[0] for test in (KEPT, CROSSED)),
            knows_the_test,
        ),
    ),
    control=leads_in("heads", GRADIENTS, PLAIN)[0],
    headline="Circuits of heads by secants over masks keep {outcome} more of a task's effect than by the secant of"
    " texts, less than the predicted .03, and {control} more than by gradients over masks ({n} tasks).",
    against="Circuits of neurons whose scores were told means, run with the corrupted text's values, are behind those"
    " by the secant of texts ({Leads of secant over masks, twice / means, crossed / secant}).",
    limits="Fourteen tasks of one model, six of them seen before; with means much is left in ten of them.",
    tables={
        f"Leads of {FIRST}": Table(
            "circuits",
            ("setting", "tasks"),
            {"": Cell(_held_together, 3, "+")},
            columns="method",
            prepare=lead_and_mean,
            note=f"The column of {FIRST} is the share that its circuits keep.",
        ),
    },
    measure=measure,
    settings={
        "settings": {name: setting._asdict() for name, setting in SETTINGS.items()},
        "methods": {name: PASSES[name] for name in METHODS},
        "seed": SEED,
        "others": OTHERS,
        "steps": STEPS,
        "fractions": FRACTIONS,
    },
)
