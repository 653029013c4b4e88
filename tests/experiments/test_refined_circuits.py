"""The study of refined circuits: its circuits beside those of the package, the ends of its curves, and its verdicts."""

import numpy as np
import pandas as pd
import pytest
from helpers import near

import duat_jax as duat
from duat_jax.evaluation.circuits import METHODS, run, values
from duat_jax.evaluation.task_circuit import task_circuits
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import differences, draw
from experiments.estimate import estimate
from experiments.refined import run as study
from experiments.task_curves import KEPT, REMOVED

COUNT = 2


@pytest.fixture(scope="module")
def case():
    """Return the embedded model, prompts of a task, and the study's rows of it, by ranking and test, in few steps."""
    model = duat.load()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "STEPS", 2)
        patch.setattr(study, "MANY", 2)
        rows = study.rows_on_task(model, "parameter", COUNT, COUNT)
    prompts = draw(model, "parameter", 2 * COUNT, seed=study.SEED).prompts
    return model, prompts, {(row["method"], row["test"]): row for row in rows}


@pytest.mark.slow
def test_its_circuits_are_those_of_the_package(case):
    model, prompts, rows = case
    found = task_circuits(model, prompts, "secant", METHODS["secant"], ("neuron x position",), steps=2)
    circuit = found["neuron x position"]
    for name, curve in ((study.SECANT, circuit.refinement.before), (study.FIRST, circuit.curve)):
        near(rows[name, KEPT]["runs"], curve.kept, within=2e-3)
        near(rows[name, REMOVED]["runs"], curve.removed, within=2e-3)
        near(rows[name, KEPT]["clean"], curve.clean, within=2e-3)
    assert (rows[study.FIRST, KEPT]["runs"] != rows[study.SECANT, KEPT]["runs"]).any()


@pytest.mark.slow
def test_every_ranking_is_tested_on_other_prompts_and_some_with_other_values(case):
    _, _, rows = case
    for name in {name for name, _ in rows}:
        tests = {test for of, test in rows if of == name}
        assert tests == {KEPT, REMOVED} or name in study.EVERYWHERE
    assert {test for name, test in rows if name == study.FIRST} == {KEPT, REMOVED, study.OTHER, study.MEANS, study.SAME}


@pytest.mark.slow
def test_the_share_is_zero_for_the_empty_circuit_where_other_values_stand(case):
    model, prompts, rows = case
    for name in study.EVERYWHERE:
        near(rows[name, KEPT]["zero"], differences(model, prompts)[1][COUNT:], within=2e-3)
        for test in (study.OTHER, study.MEANS):
            near(rows[name, test]["zero"], rows[study.SECANT, test]["zero"], within=2e-3)
    assert abs(rows[study.SECANT, KEPT]["zero"] - rows[study.SECANT, study.MEANS]["zero"]).max() > 0.01
    means = sum(values(model, prompts.corrupted[i], study.KIND) for i in range(COUNT)) / COUNT
    (empty,) = run(model, row(prompts, COUNT), study.KIND, np.zeros((1, *means.shape), bool), means)
    near(rows[study.SECANT, study.MEANS]["zero"][0], empty, within=2e-3)


def test_the_ranking_in_twenty_steps_is_a_mean_over_two_draws():
    def of(method, difference):
        runs = [[difference] * len(study.FRACTIONS)]
        return {"task": "one", "test": KEPT, "method": method, "clean": [9.0], "zero": [1.0], "runs": runs}

    circuits = pd.DataFrame([of(study.SECANT, 1.0), of(study.FIRST, 3.0), of(study.SECOND, 7.0)])
    scored = study.over_draws(circuits).set_index("method").logf
    near(scored.to_numpy(), [0, 0.5], within=1e-12)
    assert list(scored.index) == [study.SECANT, study.FIRST]


ABOVE, ACROSS, BELOW = ([0.05, 0.051], [-0.01, 0.01], [-0.05, -0.051])


def decided(number, *leads):
    return study.STUDY.predictions[number].decide(*map(estimate, leads))


def test_a_lead_is_as_predicted_where_both_ways_of_counting_are_above_zero():
    assert decided(0, ABOVE, ABOVE) == "confirmed"
    assert decided(0, [0.02, 0.021], ABOVE) == "mixed"
    assert decided(0, ABOVE, ACROSS) == "undecided"
    assert decided(0, BELOW, ABOVE) == "refuted"


def test_optimising_has_the_credit_only_beside_every_rival():
    assert decided(1, ABOVE, ABOVE, ABOVE, ABOVE, ABOVE) == "confirmed"
    assert decided(1, BELOW, ABOVE, ABOVE, ABOVE, ABOVE) == "undecided"
    assert decided(1, ABOVE, ABOVE, ABOVE, ABOVE, ACROSS) == "undecided"
    assert decided(1, ABOVE, ABOVE, ABOVE, ABOVE, BELOW) == "refuted"
    assert decided(1, BELOW, BELOW, BELOW, BELOW, BELOW) == "refuted"


def test_further_predictions_are_of_leads_above_zero():
    for number, leads in ((2, 2), (3, 1), (4, 1)):
        assert decided(number, *leads * [ABOVE]) == "confirmed"
        assert decided(number, *(leads - 1) * [ABOVE], ACROSS) == "undecided"
        assert decided(number, *(leads - 1) * [ABOVE], BELOW) == "refuted"
