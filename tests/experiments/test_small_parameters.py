"""Single small parameters: what is removed, where they are, and the verdicts."""

import numpy as np
import pandas as pd
import pytest
from helpers import near

import duat_jax as duat
from duat_jax.evaluation.running_text import mean_loss, stream, windows
from duat_jax.weights.rounded import sizes_of_matrices
from duat_jax.weights.units import parameters_of
from experiments.pruning import parameters
from experiments.pruning.draws import window_losses
from experiments.table import render
from experiments.texts import held_out_sources


@pytest.mark.parametrize("how", [parameters.SMALLEST, parameters.WITHIN, parameters.AT_RANDOM])
def test_a_share_of_the_matrices_entries_is_removed(how):
    model = duat.load()
    before, after = parameters_of(model), parameters_of(parameters.without(model, 0.3, how))
    names = sizes_of_matrices(model)
    gone = {name: np.asarray(after[name]) == 0 for name in names}
    near(sum(of.sum() for of in gone.values()) / sum(names.values()), 0.3, 0.002)
    for name, leaf in before.items():
        same = np.asarray(after[name]) == np.asarray(leaf)
        assert same.all() if name not in names else (same | gone[name]).all()
    sizes = {name: np.abs(np.asarray(before[name])) for name in names}
    if how == parameters.SMALLEST:
        removed, kept = (np.concatenate([sizes[name][gone[name] == of] for name in names]) for of in (True, False))
        assert removed.max() <= kept.min()
    if how == parameters.WITHIN:
        assert all(abs(gone[name].mean() - 0.3) < 0.002 for name in names)


def test_shares_of_layers_average_to_one():
    model = duat.load()
    found = parameters.shares_of_layers(model)
    sizes = np.zeros(len(found["layers"]))
    for name, size in sizes_of_matrices(model).items():
        sizes[int(name.split(".")[1])] += size
    near(np.average(found["layers"], weights=sizes), 1.0, 1e-3)


def frames(added, layer):
    models, choices = parameters.WINDOWS, (parameters.SMALLEST, parameters.AT_RANDOM)
    rows = [{"model": of, "choice": how, "removed": "20%", "added": [added] * 9} for of in models for how in choices]
    places = [{"model": of, "layers": [1.0, layer], "matrices": [0.5, 3.0]} for of in models]
    return {"removals": pd.DataFrame(rows), "places": pd.DataFrame(places)}


@pytest.mark.parametrize(
    ("added", "layer", "expected"),
    [
        (0.01, 2.5, ["confirmed", "confirmed"]),
        (0.5, 1.2, ["refuted", "refuted"]),
        (0.1, 1.8, ["undecided", "undecided"]),
    ],
)
def test_verdicts_follow_the_stated_bounds(added, layer, expected):
    found = frames(added, layer)
    assert [prediction.verdict(found) for prediction in parameters.STUDY.predictions] == expected
    near(parameters.STUDY.control.estimate(found).value, added, 1e-6)
    shown = render(parameters.STUDY.tables["Places of the smallest tenth"], found)
    assert f"| {layer:.2f} (layer 1) | 0.50 | 3.00 |" in shown[2]


def test_the_smallest_entries_go_at_less_loss_than_random_ones():
    model = duat.load()
    ids = windows(stream(model.tokenizer, held_out_sources()[:5]), 2, 32, seed=0)
    whole = window_losses(model, ids)
    near(whole.mean(), mean_loss(model, ids), within=1e-5)
    smallest, at_random = (
        np.mean(parameters.added(model, ids, whole, 0.5, how, 0)["added"])
        for how in (parameters.SMALLEST, parameters.AT_RANDOM)
    )
    near(parameters.added(model, ids, whole, 0.0, parameters.AT_RANDOM, 0)["added"], 0, within=1e-6)
    assert 0 < smallest < at_random
