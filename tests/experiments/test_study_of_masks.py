"""The study of secants over masks: its circuits beside those of the package, its interval beside the textbook's."""

import numpy as np
import pandas as pd
import pytest
from helpers import close, near

import duat_jax as duat
from duat_jax.evaluation.circuit_curve import STATISTICS, faithfulness
from duat_jax.evaluation.circuits import METHODS, UNITS, corrupted_values, kept_and_removed, measure, run, scores_of
from duat_jax.evaluation.statistics import students_mean
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import draw
from experiments.estimate import estimate
from experiments.masks import run as study
from experiments.task_curves import KEPT, stated_leads, with_statistics

COUNT = 4


@pytest.fixture(scope="module")
def case():
    """Return the embedded model, prompts of a task, and the study's rows of it, of two methods, by method and test."""
    model = duat.load()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "METHODS", {name: study.METHODS[name] for name in ("secant", study.FIRST)})
        patch.setattr(study, "OF_OTHERS", 2)
        rows = study.rows_on_task(model, "parameter", COUNT)
    return (
        model,
        draw(model, "parameter", COUNT, seed=study.SEED).prompts,
        {(of["method"], of["test"]): of for of in rows},
    )


@pytest.mark.slow
def test_each_prompts_circuits_are_those_of_the_package(case):
    model, prompts, rows = case
    curves = measure(model, prompts, {name: METHODS[name] for name in ("secant", study.FIRST)}, ["neuron x position"])
    for name, curve in curves["neuron x position"].items():
        of = rows[name, KEPT]
        near(of["runs"], curve.kept, within=2e-3)
        scored = with_statistics(pd.DataFrame([of]))
        near(scored.logf.iloc[0], STATISTICS["logf"](faithfulness(curve, curve.kept), None), within=2e-3)


@pytest.mark.slow
def test_the_tests_that_no_score_is_made_for(case):
    """The whole model kept and nothing kept, on both texts; the circuit of one half of the prompts, on the other."""
    model, prompts, rows = case
    kind = UNITS["neuron x position"]
    scores = np.asarray(scores_of(METHODS["secant"], model, prompts, (kind,))[0])
    values_of = corrupted_values(model, prompts, {"it": kind}, False)
    kept = kept_and_removed(scores[:2].mean(0), "secant")[:9]
    other = rows["secant", study.ONE_CIRCUIT]
    assert len(other["runs"]) == len(other["clean"]) == len(other["zero"]) == COUNT - 2
    near(other["clean"], rows["secant", KEPT]["clean"][2:], within=1e-6)
    for i, measured in enumerate(other["runs"], start=2):
        prompt = row(prompts, i)
        near(measured, run(model, prompt, kind, kept, values_of(prompt.corrupted)["it"]), within=2e-3)
    first = row(prompts, 0)
    kept = kept_and_removed(scores[0], "secant")[:9]
    replaced = values_of(prompts.corrupted[1])["it"]
    near(rows["secant", study.ANOTHER]["runs"][0], run(model, first, kind, kept, replaced), 2e-3)
    swapped = first._replace(clean=first.corrupted)
    restored = run(model, swapped, kind, ~kept, values_of(first.clean)["it"])
    near(rows["secant", study.REVERSED]["runs"][0], restored, within=2e-3)


@pytest.mark.parametrize(
    ("leads", "verdict"),
    [
        (([0.05, 0.051], [0.04, 0.041]), "confirmed"),
        (([0.05, 0.051], [0.02, 0.021]), "mixed"),
        (([0.05, 0.051], [-0.01, 0.02]), "undecided"),
        (([0.05, 0.051], [-0.02, -0.021]), "refuted"),
    ],
)
def test_stated_leads_are_as_large_as_stated(leads, verdict):
    assert stated_leads(0.03)(*map(estimate, leads)) == verdict


def test_the_interval_over_tasks_is_students():
    found = students_mean(np.array([1.0, 2.0, 3.0]))
    close(found.value, 2.0)
    near(found.high - found.value, 4.302653 / np.sqrt(3), within=1e-5)
    near(found.value - found.low, 4.302653 / np.sqrt(3), within=1e-5)
    near(students_mean(np.array([1.0, 2.0, 3.0]), 5).high - 2, 9.924843 / np.sqrt(3), within=1e-5)
