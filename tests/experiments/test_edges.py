"""The network of edges against the model, its masks, single edges by hand, and methods that must agree."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from cases import GOLDEN
from helpers import close, near

import duat_jax as duat
from duat_jax.attribution.masks import integrated_gradients
from duat_jax.evaluation.circuits import FRACTIONS
from duat_jax.inputs.prompts import Prompt, logit_difference
from experiments import task_curves
from experiments.edges import network
from experiments.edges import run as study
from experiments.estimate import estimate
from experiments.masks.elsewhere_scores import once
from experiments.rivals import backward
from experiments.rivals.backward import DEEPLIFT, TEMPERATURE, gim_rules
from experiments.rivals.network import PLAIN

GIM = gim_rules(TEMPERATURE)

PROMPT = Prompt(jnp.array([5, 9, 14, 3, 8]), jnp.array([5, 30, 14, 3, 8]), jnp.array(11), jnp.array(7))


@pytest.fixture(scope="module", params=["gpt2", "llama", "qwen3"])
def model(request):
    """A model with biases, one with fewer keys than queries, one whose queries and keys are normalised."""
    return duat.load(GOLDEN / request.param, dtype="float64", scanned=True)


def masked(model):
    x, corrupted = model.embed(PROMPT.clean), network.sent_by(model, model.embed(PROMPT.corrupted))
    return network.with_mask(model, x, corrupted, PROMPT.right, PROMPT.wrong), corrupted


def test_all_edges_are_the_model_and_none_the_corrupted_text(model):
    number, corrupted = masked(model)
    edges = network.edges_of(model.config)
    ones = jnp.ones(edges.sum())
    for mask, ids in ((ones, PROMPT.clean), (0 * ones, PROMPT.corrupted)):
        close(number(mask), logit_difference(model, model.embed(ids), PROMPT.right, PROMPT.wrong), layers=2)
    close(corrupted.sum(0), model.stream(model.embed(PROMPT.corrupted), model.config.layers), layers=2)
    assert corrupted.shape[0] == edges.shape[1] and edges[-1].all()


def test_a_single_edge_is_that_of_the_streams_changed_by_hand(model):
    """Without the edges into the last MLP the block is its own parts on streams that are put together here."""
    number, corrupted = masked(model)
    edges = network.edges_of(model.config)
    mask = np.ones(edges.shape)
    mask[-2] = 0
    block, x = model.stack.blocks[-1], model.embed(PROMPT.clean)
    before = model.stream(x, model.config.layers - 1)
    before = before + block.attention(block.norm_1(before))
    of_corrupted = corrupted[: edges[-2].sum()].sum(0)
    state = model.head.states(model.final_norm(before + block.mlp(block.norm_2(of_corrupted))))[-1]
    logits = model.head.logits(state, model.unembedding)
    close(number(jnp.asarray(mask[edges])), logits[PROMPT.right] - logits[PROMPT.wrong], layers=2)


def test_scores_over_masks_sum_to_the_difference(model):
    number, _ = masked(model)
    ones = jnp.ones(network.edges_of(model.config).sum())
    parts = study.scored(study.METHODS["secant over masks"], model, PROMPT)
    close(parts.sum(), number(ones) - number(0 * ones), layers=2)
    many = study._over_masks(partial(once, partial(integrated_gradients, steps=400)))
    near(study.scored(many, model, PROMPT).sum(), number(ones) - number(0 * ones), within=1e-4)


def test_the_gradient_is_that_of_the_mask(model):
    number, _ = masked(model)
    ones = jnp.ones(network.edges_of(model.config).sum())
    found = study.scored(study.METHODS["gradient x change"], model, PROMPT)
    close(found, jax.grad(number)(ones), layers=2)


def test_the_texts_secant_into_the_logits_sums_to_the_difference(model):
    """Whatever reaches the logits has come through an edge into them."""
    number, _ = masked(model)
    ones = jnp.ones(network.edges_of(model.config).sum())
    found = study.scored(study.METHODS["secant"], model, PROMPT)
    into_the_logits = found[-network.edges_of(model.config).shape[1] :]
    close(into_the_logits.sum(), number(ones) - number(0 * ones), layers=2)


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def plain(request):
    """A model without norms of queries and keys, of which other ways back are known."""
    return duat.load(GOLDEN / request.param, dtype="float64", scanned=True)


def test_the_models_own_rules_are_the_gradient(plain):
    found = study.scored(study._of_texts(partial(study._by_rules, rules=PLAIN)), plain, PROMPT)
    close(found, study.scored(study.METHODS["gradient x change"], plain, PROMPT), layers=2)


def test_deeplift_into_the_logits_sums_to_the_difference(plain):
    number, _ = masked(plain)
    edges = network.edges_of(plain.config)
    ones = jnp.ones(edges.sum())
    found = study.scored(study.METHODS["DeepLIFT"], plain, PROMPT)
    close(found[-edges.shape[1] :].sum(), number(ones) - number(0 * ones), layers=2)


@pytest.mark.parametrize(
    "name, rules, of_units", [("GIM", GIM, backward.gim), ("DeepLIFT", DEEPLIFT, backward.deeplift)]
)
def test_ways_back_are_those_of_units(plain, name, rules, of_units):
    """The sum over the edges out of a head is its own score, summed over tokens, as its output reaches all readers."""
    found = study.scored(study.METHODS[name], plain, PROMPT)
    edges = network.edges_of(plain.config)
    dense = np.zeros(edges.shape)
    dense[np.nonzero(edges)] = found
    ids = PROMPT.clean, PROMPT.corrupted, PROMPT.right, PROMPT.wrong
    heads = np.asarray(of_units(duat.load(plain_path(plain), dtype="float64"), *ids).heads).sum(1)
    block = plain.config.blocks[0]
    senders = 1 + np.arange(plain.config.layers)[:, None] * (block.heads + 1) + np.arange(block.heads)
    close(dense.sum(0)[senders], heads, layers=2)


def plain_path(model):
    return GOLDEN / model.config.family


def test_other_blocks_are_refused():
    for model in (duat.load(GOLDEN / "bert", scanned=True), duat.load(GOLDEN / "gpt2")):
        with pytest.raises(ValueError, match="pre-norm"):
            network.sent_by(model, model.embed(jnp.array([1, 2, 3])))


def test_rows_have_a_curve_of_every_method_and_equal_methods_are_level(monkeypatch):
    methods = {name: study.METHODS[name] for name in (study.OURS, "gradient x change", "random")}
    monkeypatch.setattr(study, "METHODS", methods | {"the same": study.METHODS[study.OURS]})
    rows = study.rows_on_task(duat.load(scanned=True), "parameter", 3)
    assert [row["method"] for row in rows] == [*methods, "the same"]
    assert all(np.shape(row["runs"]) == (3, len(FRACTIONS)) for row in rows)
    circuits = pd.DataFrame(rows).assign(task="parameter")
    scored = task_curves.with_statistics(circuits)
    assert task_curves.lead(scored, study.OURS, "the same")[:3] == (0, 0, 0)
    assert task_curves.lead(scored, study.OURS, "random").low > 0
    (of,) = (row for row in rows if row["method"] == "random")
    clean, corrupted = np.mean(of["clean"]), np.mean(of["zero"])
    shares = (np.mean(of["runs"], 0) - corrupted) / (clean - corrupted)
    sizes = np.log(FRACTIONS)
    expected = np.trapezoid(shares, sizes) / np.ptp(sizes)
    near(scored[scored.method == "random"].logf.iloc[0], expected, within=1e-9)


def test_methods_are_level_where_the_interval_has_zero_in_it():
    assert study.levels(estimate([-1.0, 1.0, 0.5])) == "confirmed"
    assert study.levels(estimate([1.0, 1.1])) == study.levels(estimate([-1.0, -1.1])) == "refuted"
