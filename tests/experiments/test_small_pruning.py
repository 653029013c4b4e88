"""Small runs of the studies of pruning: a new run would keep what is kept."""

import jax
import numpy as np
import pytest
from cases import GOLDEN
from measured import frames_of

import duat_jax as duat
from experiments import run
from experiments.pruning import baselines, inequality, layers, parameters, rankings, removals
from experiments.pruning import run as neurons
from experiments.pruning.draws import EMBEDDED, Draws
from experiments.studies import name_of

TOKENS = np.array(jax.random.randint(jax.random.key(3), (40 * 9,), 0, 30), np.int32)
DRAWS = range(1)
SMALL = {
    neurons: {"HELD_OUT": {EMBEDDED: 5}, "DRAWS": DRAWS},
    baselines: {"SIZES": {EMBEDDED: (4, 5)}, "DRAWS": DRAWS, "ROUNDS": 2},
    inequality: {"MODELS": {EMBEDDED: (4, 4, 5)}, "DRAWS": DRAWS},
    layers: {
        "SETTINGS": {EMBEDDED: layers.Settings(4, 4, {"layers": (1, 2), "MLPs": (1,)}, ("layers",), thorough=True)},
        "DRAWS": DRAWS,
    },
    parameters: {"WINDOWS": {EMBEDDED: 5}},
}


@pytest.mark.slow
@pytest.mark.parametrize("module", SMALL, ids=lambda module: module.__name__.removeprefix("experiments."))
def test_a_new_run_has_the_frames_and_columns_that_are_kept(module, monkeypatch):
    for name, value in SMALL[module].items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(removals, "SEEN", 2)
    monkeypatch.setattr(rankings, "EVERY", 3)
    held_out = TOKENS[-36:].reshape(4, 9)
    monkeypatch.setattr(module, "draws_of", lambda *asked: Draws(duat.load(GOLDEN / "gpt2"), TOKENS, held_out, 4))
    with jax.numpy_dtype_promotion("standard"):
        found = frames_of(module.STUDY.measure())
    kept = run.frames_of(name_of(run.ROOT / f"{module.__name__.replace('.', '/')}.py"))
    assert {frame: set(of.columns) for frame, of in found.items()} == {
        frame: set(of.columns) for frame, of in kept.items()
    }
    for frame, of in found.items():
        for column in of.columns:
            assert of[column].map(type).iloc[0] == kept[frame][column].map(type).iloc[0], (frame, column)
