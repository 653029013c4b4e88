"""Smaller models of equal budgets: their sizes, that they are the same function resized, and their tables."""

from functools import partial

import jax
import numpy as np
import pytest
from cases import GOLDEN
from helpers import near

import duat_jax as duat
from duat_jax.evaluation.running_text import mean_loss
from experiments.markdown import cells
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


def test_tables_have_the_paired_differences(draws, monkeypatch):
    methods = (baselines.OURS, "Wanda-like", baselines.SHARED)
    monkeypatch.setattr(baselines, "METHODS", methods)
    monkeypatch.setattr(baselines, "KEPT", (0.75,))
    drawn = [baselines.of_draw(draws, draw) for draw in range(2)]
    loss = partial(mean_loss, draws.model, draws.held_out)()
    whole = {"loss": loss, **baselines.parameters(draws.model), "products": baselines.products(draws.model)}
    seconds = {"0.75": {"whole": 1.0, baselines.OURS: 0.5}}
    results = {"whole": whole, "draws": drawn, "seconds": seconds}
    found = cells(baselines.fields(results | {"further": {"another": results}})["tables"])
    for field in [field for field in found if ", another" not in field]:
        title, _, rest = field.partition(" / ")
        assert found[f"{title}, another / {rest}"] == found[field]
    ours, wanda = (np.array([draw[f"{name}, 0.75"]["loss"] for draw in drawn]) for name in methods[:2])
    near(float(found["Loss at equal budgets / Wanda-like / 75% kept / value"]), wanda.mean() - loss, within=6e-4)
    near(
        float(found["Loss at equal budgets / Wanda-like / difference, 75% kept / value"]),
        (wanda - ours).mean(),
        within=6e-4,
    )
    assert found["Seconds at equal budgets / whole / 75% kept"] == "1.000"
    assert found[f"Sizes at equal budgets / {baselines.SHARED} / products, 75% kept"].endswith("%")
