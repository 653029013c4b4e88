"""The study of refined circuits: its circuits beside those of the package, the ends of its curves, and its verdicts."""

import numpy as np
import pytest
from helpers import near

import duat_jax as duat
from duat_jax.evaluation.circuits import METHODS
from duat_jax.evaluation.statistics import IntervalEstimate
from duat_jax.evaluation.task_circuit import task_circuits
from duat_jax.inputs.prompts import draw
from experiments.refined import run as study

COUNT = 2


@pytest.fixture(scope="module")
def case():
    """Return the embedded model, prompts of a task, and the study's piece of it, in few steps."""
    model, tokenizer = duat.load(), duat.load_tokenizer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "STEPS", 2)
        patch.setattr(study, "MANY", 2)
        piece = study.piece(model, tokenizer, "parameter", COUNT, COUNT)
    return model, draw(model, "parameter", 2 * COUNT, seed=study.SEED).prompts, piece


def test_its_circuits_are_those_of_the_package(case):
    model, prompts, piece = case
    found = task_circuits(model, prompts, "secant", METHODS["secant"], ("neuron x position",), steps=2)
    circuit = found["neuron x position"]
    for name, curve in ((study.SECANT, circuit.refinement.before), (study.FIRST, circuit.curve)):
        runs = piece["runs"][name]
        near(np.array(runs[study.OWN])[:, :-1], curve.kept, within=2e-3)
        near(np.array(runs[study.REMOVED])[:, :-1], curve.removed, within=2e-3)
    assert piece["runs"][study.FIRST] != piece["runs"][study.SECANT]


def test_the_last_circuit_is_empty_and_removing_it_leaves_the_model(case):
    _, _, piece = case
    for name, runs in piece["runs"].items():
        near(np.array(runs[study.REMOVED])[:, -1], piece["clean"][COUNT:], within=2e-3)
        assert set(runs) == {study.OWN, study.REMOVED} or name in study.EVERYWHERE
    empty = {test: np.array(piece["runs"][study.SECANT][test])[:, -1] for test in (study.OWN, study.OTHER, study.MEANS)}
    for name in study.EVERYWHERE:
        for test, runs in empty.items():
            near(np.array(piece["runs"][name][test])[:, -1], runs, within=2e-3)
    assert abs(empty[study.OWN] - empty[study.MEANS]).max() > 0.01


def test_the_share_of_other_values_is_zero_for_the_empty_circuit():
    sizes = len(study.FRACTIONS)
    measured = np.full((2, sizes + 1), 3.0)
    measured[:, -1] = 2.0
    task = {"clean": [9.0, 9.0, 4.0, 4.0], "corrupted": [9.0, 9.0, 1.0, 1.0]}
    task["runs"] = {"one": {study.OWN: measured.tolist(), study.MEANS: measured.tolist()}}
    near(study.statistic(task, "one", study.OWN, study.PLAIN), 2 / 3, within=1e-9)
    near(study.statistic(task, "one", study.MEANS, study.PLAIN), 1 / 2, within=1e-9)


def test_verdicts_follow_the_rules():
    above, across, below = (
        IntervalEstimate(0.05, 0.01, 0.09),
        IntervalEstimate(0.0, -0.01, 0.01),
        IntervalEstimate(-0.05, -0.09, -0.01),
    )
    names = [
        *(f"over {ranking}" for ranking in study.RIVALS),
        *("over secant, overshoot counted", "over secant, removed", "of the secant over random with sixty steps"),
        *(f"over secant, {test}" for test in (study.OTHER, study.MEANS)),
    ]
    every = dict.fromkeys(names, above)
    assert set(study.verdicts(every).values()) == {"confirmed"}
    assert (
        study.verdicts(every | {"over secant": IntervalEstimate(0.02, 0.01, 0.03)})["ahead"]
        == "confirmed, smaller than predicted"
    )
    assert study.verdicts(every | {"over secant, overshoot counted": across})["ahead"] == "not shown"
    assert study.verdicts(every | {"over secant": below})["ahead"] == "refuted"
    assert study.verdicts(every | {"over secant": below})["by optimising"] == "not shown"
    assert study.verdicts(every | {f"over {study.ONE_STEP}": across})["by optimising"] == "not shown"
    assert study.verdicts(every | {f"over secant, {study.MEANS}": across})["other values"] == "not shown"
    assert study.verdicts(every | {f"over secant, {study.MEANS}": below})["other values"] == "made for this test"
    assert study.verdicts(dict.fromkeys(names, below)) == {
        "ahead": "refuted",
        "by optimising": "refuted",
        "other values": "made for this test",
        "scores needed": "refuted",
        "number alone": "refuted",
    }
