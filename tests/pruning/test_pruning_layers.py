"""Whole layers that go, and what cannot be pruned."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close
from test_pruning import FEATURES, IDS, LAYERS, NEURONS, VOCAB, carried, model_of, said

import duat_jax as duat
from duat_jax.models.config import Head
from duat_jax.pruning import layers as of_layers
from duat_jax.pruning.pruner import prune


def test_a_layer_that_adds_the_same_everywhere_is_removed_exactly():
    model = model_of()
    block = model.stack.blocks[1]
    for part in (block.attention.output, block.mlp.output):
        part.kernel.set_value(jnp.zeros_like(part.kernel[...]))
    ids = jnp.asarray(IDS)
    for compensation in ("mean", "refit"):
        smaller = of_layers.remove_layers(model, IDS, [1], compensation=compensation)
        assert smaller.config.layers == 2
        close(said(smaller, ids), said(model, ids), layers=50)
    assert of_layers.layer_scores(model, IDS, "block influence").argmin() == 1
    assert of_layers.least_important(model, IDS, 1, "block influence") == [1]
    assert of_layers.least_important(model, IDS, 9, "random") == [1, 2]


@pytest.mark.slow
def test_layers_are_ranked_by_what_they_contribute_and_by_the_angle_that_they_turn_the_stream():
    model = model_of()
    found = {method: of_layers.layer_scores(model, IDS, method) for method in of_layers.METHODS}
    expected = {method: np.zeros(LAYERS) for method in found}
    for row in IDS:
        p = jax.nn.softmax(said(model, jnp.asarray(row[:-1])))
        streams, covectors = carried(model, jnp.asarray(row[:-1]), p - jax.nn.one_hot(row[1:], VOCAB, dtype=p.dtype))
        for layer in range(LAYERS):
            before, after = (np.asarray(streams[i]) for i in (layer, layer + 1))
            cosine = (before * after).sum(-1) / np.linalg.norm(before, axis=-1) / np.linalg.norm(after, axis=-1)
            expected["block influence"][layer] += (1 - cosine).sum()
            expected["contributions"][layer] += (
                (np.asarray(covectors[layer + 1]) * (after - before)).sum(-1) ** 2
            ).sum()
    for method in found:
        close(found[method], expected[method] / (len(IDS) * 6))


def test_what_layers_added_is_refitted_to_neurons_that_tell_it():
    # Layer 1 adds what layer 0's neurons say, by other weights: removing it is exact where they take it over.
    model = model_of(norm="none", final_norm=False, attention_bias=False, output_bias=False)
    first, second = (model.stack.blocks[i] for i in (0, 1))
    second.attention.output.kernel.set_value(jnp.zeros((FEATURES, FEATURES)))
    for part in (first.attention.output, first.mlp.output):
        part.kernel.set_value(part.kernel[...] * 0)
    first.mlp.output.bias.set_value(jnp.zeros(FEATURES))
    second.mlp = jax.tree.map(jnp.copy, first.mlp)
    second.mlp.output.kernel.set_value(jax.random.normal(jax.random.key(1), (NEURONS, FEATURES)))
    smaller = of_layers.remove_layers(model, IDS, [1])
    difference = jnp.abs(said(smaller, jnp.asarray(IDS)) - said(model, jnp.asarray(IDS))).max()
    by_mean = of_layers.remove_layers(model, IDS, [1], compensation="mean")
    assert difference < 1e-3
    assert jnp.abs(said(by_mean, jnp.asarray(IDS)) - said(model, jnp.asarray(IDS))).max() > 100 * difference


def test_what_cannot_be_pruned_is_said():
    model = model_of()
    with pytest.raises(duat.DuatError, match=r"not 1.0.*no method 'guess'.*no compensation 'hope'.*no layer 3, 9"):
        prune(model, IDS, 1.0, method="guess", compensation="hope", layers=[9, 3, 0])
    with pytest.raises(duat.DuatError, match="not -0.1"):
        prune(model, IDS, -0.1)
    with pytest.raises(duat.DuatError, match="rounds must be at least 1"):
        prune(model, IDS, 0.1, rounds=0)
    with pytest.raises(duat.InvalidInput, match="no calibration text"):
        prune(model, IDS[:0], 0.1)
    with pytest.raises(duat.DuatError, match=r"not -0.3.*no method 'guess'"):
        of_layers.prune_layers(model, IDS, -0.3, method="guess")
    assert of_layers.prune_layers(model, IDS, 0.1).config.layers == of_layers.how_many_layers(model, 0.9) + 1 == LAYERS
    with pytest.raises(duat.DuatError, match="the first layer can't be removed"):
        of_layers.remove_layers(model, IDS, [0])
    with pytest.raises(duat.DuatError, match=r"no layer 3.*no compensation 'hope'"):
        of_layers.remove_layers(model, IDS, [3], compensation="hope")
    hidden = dataclasses.replace(model.config, head=Head())
    with pytest.raises(duat.DuatError, match="reads out hidden"):
        prune(duat.models.Transformer(hidden, dtype=jnp.float64, rngs=nnx.Rngs(0)), IDS, 0.1)
    after = model_of(arrangement="post-norm")
    with pytest.raises(duat.DuatError, match="a norm stands between"):
        of_layers.remove_layers(after, IDS, [1])
    assert json.dumps(prune(after, IDS, 0.5).config.blocks[0].neurons) == "4"
