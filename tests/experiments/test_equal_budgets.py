"""Smaller models of equal budgets: their sizes, that they are the same function resized, and what decides."""

import jax
import numpy as np
import pandas as pd
import pytest
from cases import GOLDEN
from helpers import near

import duat_jax as duat
from duat_jax.evaluation.running_text import mean_loss
from experiments.pruning import baselines
from experiments.pruning.draws import Draws

TOKENS = np.array(jax.random.randint(jax.random.key(3), (40 * 9,), 0, 30), np.int32)


@pytest.fixture(scope="module")
def draws():
    return Draws(duat.load(GOLDEN / "gpt2"), TOKENS, TOKENS[-45:].reshape(5, 9), 4)


@pytest.fixture(scope="module")
def gated_draws():
    return Draws(duat.load(GOLDEN / "llama"), TOKENS, TOKENS[-45:].reshape(5, 9), 4)


def test_gated_models_without_biases_are_within_their_budgets(gated_draws):
    calibrated, whole = baselines.Calibrated(gated_draws, 1), baselines.parameters(gated_draws.model)["layers"]
    for method in baselines.METHODS:
        size = baselines.parameters(calibrated.pruned(method, 0.75, resize=True))["layers"]
        loss = mean_loss(calibrated.pruned(method, 0.75, resize=False), gated_draws.held_out)
        added = gated_draws.model.config.layers * gated_draws.model.config.features  # biases that make up for neurons
        assert 0.4 * whole < size <= 0.75 * whole + added and np.isfinite(loss)


def test_sizes_are_those_of_the_matrices_by_hand(draws):
    model = draws.model
    block, features, vocab = model.config.blocks[0], model.config.features, model.config.vocab
    matrices = len(model.config.blocks) * (4 * features**2 + 2 * features * block.neurons)
    assert baselines.products(model) == matrices + vocab * features
    vectors = len(model.config.blocks) * (4 * features + block.neurons + features + 4 * features)
    assert baselines.parameters(model)["layers"] == matrices + vectors


@pytest.mark.parametrize("kept", [0.9, 0.75, 0.6])
def test_every_method_is_within_its_budget_and_close_to_it(draws, kept):
    calibrated, whole = baselines.Calibrated(draws, 1), baselines.parameters(draws.model)["layers"]
    features, layers = draws.model.config.features, draws.model.config.layers
    for method in (baselines.OURS, "FLAP-like", baselines.SLICEGPT, baselines.SHARED):
        size = baselines.parameters(calibrated.pruned(method, kept, resize=True))["layers"]
        step = layers * (2 * features + 1) if method in baselines.NEURONS else 0.25 * whole
        assert kept * whole - step < size <= kept * whole


def test_a_resized_model_is_the_same_function(draws):
    calibrated = baselines.Calibrated(draws, 0)
    for method in ("FLAP-like", "Wanda-like", baselines.OURS):
        losses = [mean_loss(calibrated.pruned(method, 0.75, resize=resize), draws.held_out) for resize in (True, False)]
        near(*losses, within=1e-5)


def test_rows_have_the_paired_differences(draws, monkeypatch):
    methods = (baselines.OURS, "Wanda-like", baselines.SHARED)
    monkeypatch.setattr(baselines, "METHODS", methods)
    monkeypatch.setattr(baselines, "KEPT", (0.75,))
    whole = baselines.whole_model(draws)
    near(whole["loss"], mean_loss(draws.model, draws.held_out), within=1e-6)
    calibrated, rows = baselines.Calibrated(draws, 1), baselines.of_draw(draws, whole, 1)
    losses = [mean_loss(calibrated.pruned(method, 0.75, resize=False), draws.held_out) for method in methods]
    for row, method, loss in zip(rows, methods, losses, strict=True):
        assert (row["method"], row["kept"]) == (method, "75%")
        near(row["added"], loss - whole["loss"], within=1e-6)
        near(row["difference"], loss - losses[0], within=1e-6)
        assert 0.4 < row["layers"] <= 0.75 and row["products"] < 1


def smaller(differences):
    """Return rows in which each method loses so much more than ours, at every budget and in two draws."""
    return pd.DataFrame(
        {
            "model": baselines.EMBEDDED,
            "method": method,
            "kept": f"{kept:.0%}",
            "draw": draw,
            "added": 1 + more + 0.01 * draw,
        }
        for method, more in ({baselines.OURS: 0.0} | differences).items()
        for kept in baselines.KEPT
        for draw in range(2)
    )


@pytest.mark.parametrize(
    ("published", "refitted", "said"),
    [
        (0.1, 0.1, ["confirmed", "confirmed"]),
        (0.1, 0.0, ["confirmed", "refuted"]),
        (-0.1, -0.1, ["refuted", "refuted"]),
    ],
)
def test_the_lead_is_credited_to_the_refit_where_another_is_level_with_it(published, refitted, said):
    of = dict.fromkeys(("Wanda-like", "FLAP-like", baselines.SLICEGPT), published)
    of |= dict.fromkeys(("Wanda-like, refit", "FLAP-like, refit"), refitted)
    predictions = baselines.of_model(baselines.EMBEDDED)[:2]
    assert [prediction.verdict({"smaller": smaller(of)}) for prediction in predictions] == said
