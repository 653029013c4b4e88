"""Compiled programs compute what they were compiled from, and it is known which of their units do it."""

import jax
import numpy as np
import pytest
from helpers import near

from duat_jax.evaluation.circuits import METHODS
from experiments.ground_truth.programs import LAST, OTHER, OWN, PROGRAMS
from experiments.ground_truth.run import READ, area_under_curve, areas, load, names
from experiments.run import frames_of


def test_there_are_programs_enough():
    assert len(names()) >= 5


@pytest.mark.parametrize(
    ("scores", "area"),
    [([3, 2, 1, 0], 1.0), ([0, 1, 2, 3], 0.0), ([1, 1, 1, 1], 0.5), ([3, 0, 2, 1], 0.5), ([2, 1, 1, 0], 0.875)],
)
def test_the_area_is_how_often_a_unit_that_takes_part_scores_higher(scores, area):
    assert area_under_curve(np.array(scores), np.array([True, True, False, False])) == area


@jax.jit
def run(model, ids):
    """Return the states of every token, and the logits at the last one."""
    states = model.states(model.embed(ids))
    return states, model.head.logits(states[:, -1], model.unembedding)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("count a token", "sort") else pytest.mark.slow) for name in names()],
)
def test_a_model_computes_what_the_compilers_own_does(name):
    for read in READ:
        found = load(name, read)
        states, clean = run(found.model, found.clean)
        near(states, found.states, within=4e-6 * np.abs(found.states).max())
        assert set((found.clean != found.corrupted).sum(-1).tolist()) == {1}
        for logits, sign in ((clean, 1), (run(found.model, found.corrupted)[1], -1)):
            right, wrong = (logits[np.arange(len(logits)), ids] for ids in (found.right, found.wrong))
            # A fraction is a number, not one answer of several.
            assert name == "fraction of a token" or (sign * (right - wrong) > 0.9).all()


@pytest.mark.parametrize("name", names())
def test_the_units_of_a_program_are_those_from_which_a_path_of_weights_leads_to_its_result(name):
    file = np.load(PROGRAMS / f"{name.replace(' ', '-')}.npz")
    layers, heads = file["head_roles"].shape
    features = file["token"].shape[1]

    def by_head(part):
        return file[part].reshape(layers, features, heads, -1)

    output = file["output"].reshape(layers, heads, -1, features)
    read = (file["alone"] != 0).any(0)
    neurons, attends = np.zeros(file["neuron_roles"].shape, bool), np.zeros((layers, heads), bool)
    for i in reversed(range(layers)):
        neurons[i] = (file["mlp_output"][i][:, read] != 0).any(-1)
        read = read | (file["mlp_input"][i][:, neurons[i]] != 0).any(-1)
        attends[i] = (output[i][..., read] != 0).any((-1, -2))
        for part in ("query", "key", "value"):
            read = read | (by_head(part)[i][:, attends[i]] != 0).any((-1, -2))
    np.testing.assert_array_equal(neurons, file["neuron_roles"] == OWN)
    np.testing.assert_array_equal(attends, file["head_roles"] == OWN)
    assert (file["neuron_roles"] == OTHER).any()
    assert (file["neuron_roles"] == LAST).any()


def test_the_secant_finds_a_program_that_the_size_of_changes_does_not():
    found = areas("fraction of a token", "alone", ["secant", "norm of change x W_out"])
    assert found["secant"] == 1
    assert found["norm of change x W_out"] < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("read", READ)
def test_the_page_shows_what_is_measured_again(read, optimised):
    """As users compile it: where a pre-activation is nearly zero, gradients layer by layer follow its rounding."""
    kept = frames_of("ground_truth")["areas"]
    kept = kept[(kept["read"] == read) & kept.ties & (kept.program == "histogram")]
    results = dict(zip(kept.method, kept.area, strict=True))
    again = areas("histogram", read)
    fixed = [name for name in METHODS if name != "random"]
    near([again[name] for name in fixed], [results[name] for name in fixed], within=1e-3)
