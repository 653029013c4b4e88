"""The study of secants over masks: its circuits beside those of the package, its interval beside the textbook's."""

import numpy as np
import pytest
from helpers import close, near

import duat_jax as duat
from duat_jax.evaluation.circuits import METHODS, UNITS, corrupted_values, kept_and_removed, measure, run, scores_of
from duat_jax.evaluation.statistics import students_mean
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import draw
from experiments.masks import run as study

COUNT = 4


@pytest.fixture(scope="module")
def case():
    """Return the embedded model, prompts of a task, and the study's piece of it, of two methods."""
    model, tokenizer = duat.load(), duat.load_tokenizer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "METHODS", {name: study.METHODS[name] for name in ("secant", study.FIRST)})
        patch.setattr(study, "OF_OTHERS", 2)
        piece = study._piece(model, tokenizer, "parameter", COUNT)
        found = study.summary({"one": piece, "two": piece})
    return model, draw(model, "parameter", COUNT, seed=study.SEED).prompts, piece, found


def test_each_prompts_circuits_are_those_of_the_package(case):
    model, prompts, piece, found = case
    curves = measure(model, prompts, {name: METHODS[name] for name in piece["runs"]}, ["neuron x position"])
    for name, curve in curves["neuron x position"].items():
        near(piece["runs"][name]["kept"], curve.kept, within=2e-3)
        shares = study._faithfulness(piece, name, "kept")
        near(found[name]["tests"]["kept"]["value"], study._over_sizes(shares), within=1e-9)


def test_the_tests_that_no_score_is_made_for(case):
    """The whole model kept and nothing kept, on both texts; the circuit of one half of the prompts, on the other."""
    model, prompts, piece, _ = case
    kind = UNITS["neuron x position"]
    scores = np.asarray(scores_of(METHODS["secant"], model, prompts, (kind,))[0])
    values_of = corrupted_values(model, prompts, {"it": kind}, False)
    kept = kept_and_removed(scores[:2].mean(0), "secant")[:9]
    other = piece["runs"]["secant"]["one circuit for other prompts"]
    assert len(other) == COUNT - 2
    for i, measured in enumerate(other, start=2):
        prompt = row(prompts, i)
        near(measured, run(model, prompt, kind, kept, values_of(prompt.corrupted)["it"]), within=2e-3)
    first = row(prompts, 0)
    kept = kept_and_removed(scores[0], "secant")[:9]
    replaced = values_of(prompts.corrupted[1])["it"]
    near(piece["runs"]["secant"]["another prompt's corrupted text"][0], run(model, first, kind, kept, replaced), 2e-3)
    swapped = first._replace(clean=first.corrupted)
    restored = run(model, swapped, kind, ~kept, values_of(first.clean)["it"])
    near(piece["runs"]["secant"]["reversed"][0], restored, within=2e-3)


def test_the_interval_over_tasks_is_students():
    found = students_mean(np.array([1.0, 2.0, 3.0]))
    close(found.value, 2.0)
    near(found.high - found.value, 4.302653 / np.sqrt(3), within=1e-5)
    near(found.value - found.low, 4.302653 / np.sqrt(3), within=1e-5)
    near(students_mean(np.array([1.0, 2.0, 3.0]), 5).high - 2, 9.924843 / np.sqrt(3), within=1e-5)
