"""Single small parameters: what is removed, where they are, and the verdicts."""

import numpy as np
import pytest
from helpers import near

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.weights.rounded import sizes_of_matrices
from duat_jax.weights.units import parameters_of
from experiments.pruning import parameters
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


def results(added, layer):
    pieces = {"m, whole": [2.0, 2.0], "m, shares": {"layers": [1.0, layer], "matrices": [0.5, 3.0]}}
    for share in parameters.SHARES:
        for how in (parameters.SMALLEST, parameters.WITHIN, parameters.AT_RANDOM):
            for seed in range(parameters.DRAWS):
                pieces[f"m, {how}, {share:.0%}, {seed}"] = [2.0 + added, 2.0 + added]
    return {"models": ["m"], "pieces": pieces}


@pytest.mark.parametrize(
    ("added", "layer", "expected"),
    [
        (0.01, 2.5, ["confirmed", "confirmed"]),
        (0.5, 1.2, ["refuted", "refuted"]),
        (0.1, 1.8, ["undecided", "undecided"]),
    ],
)
def test_verdicts_follow_the_stated_bounds(added, layer, expected):
    found = results(added, layer)
    assert [row[1] for row in parameters.verdicts(found)] == expected
    fields = parameters.fields(found)
    near(float(fields["Small parameters removed / m, at random / 20%"].split()[0]), added, 1e-6)
    assert fields["Places of the smallest tenth / m / the layer with the most"].startswith(f"{layer:.2f}")


def test_the_study_runs_and_goes_on(tmp_path):
    model = duat.load()
    tokenizer = model.tokenizer
    ids = windows(stream(tokenizer, held_out_sources()[:5]), 2, 32, seed=0)
    cases = {parameters.EMBEDDED: lambda: (model, ids)}
    found = parameters.measure_all(tmp_path, cases)
    journal = (tmp_path / "pruning_parameters").read_bytes()
    assert parameters.measure_all(tmp_path, cases)["pieces"] == found["pieces"]
    assert (tmp_path / "pruning_parameters").read_bytes() == journal
    smallest = parameters.added(found, parameters.EMBEDDED, parameters.SMALLEST, 0.5).mean()
    assert smallest < parameters.added(found, parameters.EMBEDDED, parameters.AT_RANDOM, 0.5).mean()
