"""Models and blocks are chosen part by part; what doesn't fit is named; a tensor map fills every parameter."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close, numbers

import duat_jax as duat
from duat_jax.models.config import Config
from duat_jax.models.families import bert, gpt2
from duat_jax.models.families.tensor_map import AS_IT_IS, FIRST_ROW, SIDE_BY_SIDE, TRANSPOSED, parameter_at
from duat_jax.models.transformer import Transformer
from duat_jax.nn import (
    Block,
    BlockConfig,
    Rotary,
    attention_mask,
    make_block,
    rotary_frequencies,
)
from duat_jax.transform.program import trace
from duat_jax.verification.networks import randomised

BLOCK = BlockConfig(arrangement="pre-norm", features=6, heads=2, neurons=8)
CONFIG = Config(family="test", block=BLOCK, layers=2, vocab=11, positions=8)


def make_model(config, key=0):
    return randomised(Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(key)), key)


CHOICES = [
    {},
    {"causal": False},
    {"position_embedding": False},
    {"segment_embedding": True},
    {"embedding_norm": True},
    {"final_norm": False},
    {"head": "hidden"},
    {"tied": False},
    {"window": 2},
    {"causal": False, "embedding_norm": True, "head": "logits", "final_norm": False},
]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_each_part_of_a_model_is_chosen_on_its_own(choice):
    config = dataclasses.replace(CONFIG, **choice)
    model, ids = make_model(config), jnp.array([3, 1, 4, 1, 5])
    x = np.asarray(model.token_embedding[...])[np.asarray(ids)]
    if config.position_embedding:
        x = x + np.asarray(model.position_embedding[...])[:5]
    if config.segment_embedding:
        x = x + np.asarray(model.segment_embedding[...])
    close(model.embed(ids), x)
    x = jnp.asarray(x)
    x = model.embedding_norm(x) if config.embedding_norm else x
    for block in model.stack.blocks:
        x = block(x, attention_mask(5, causal=config.causal, window=config.window))
    x = model.final_norm(x) if config.final_norm else x
    unembedding = model.token_embedding if config.tied else model.separate_unembedding
    close(model(ids), x if config.head == "hidden" else x @ unembedding[...].T)
    for name, present in (
        ("position_embedding", config.position_embedding),
        ("segment_embedding", config.segment_embedding),
        ("embedding_norm", config.embedding_norm),
        ("final_norm", config.final_norm),
        ("separate_unembedding", not config.tied),
    ):
        assert (getattr(model, name) is not None) == present
    parts = duat.decompose(lambda x: model.output(x)[-1, 0], model.embed(ids))
    assert parts.completeness.holds


def test_everything_wrong_with_a_configuration_is_said_at_once():
    block = dataclasses.replace(BLOCK, arrangement="sandwich", norm="batch", mlp="mixed", activation="xielu")
    with pytest.raises(duat.DuatError) as raised:
        Transformer(dataclasses.replace(CONFIG, block=block, head="words", layers=0), rngs=None)
    for words in ("'sandwich'", "norm = 'batch'", "mlp = 'mixed'", "'xielu'", "head = 'words'", "layers = 0"):
        assert words in str(raised.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heads": 4}, "heads = 4 must divide features = 6"),
        ({"heads": 0}, "heads = 0 must be positive"),
        ({"key_value_heads": 4}, "key_value_heads = 4 must divide heads = 2"),
        ({"rotary": Rotary(rotary_frequencies(4))}, "rotary turns 4 features, but a head has 3"),
        ({"attention": "sliced", "score_cap": 1.0}, "sliced attention has no score_cap"),
    ],
)
def test_sizes_that_do_not_fit_are_named(change, words):
    with pytest.raises(duat.DuatError, match=words):
        make_block(dataclasses.replace(BLOCK, **change), rngs=None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head": "hidden", "tied": False}, "tied"),
        ({"block": dataclasses.replace(BLOCK, norm="none")}, "without a kind"),
        ({"window": 0}, "window = 0"),
    ],
)
def test_parts_of_a_model_that_do_not_fit_are_named(change, words):
    with pytest.raises(duat.DuatError, match=words):
        Transformer(dataclasses.replace(CONFIG, **change), rngs=None)


def test_an_unknown_arrangement_is_an_error():
    block = make_block(BLOCK, rngs=None)
    with pytest.raises(duat.DuatError, match="'sandwich': choose one of paper, pre-norm"):
        Block("sandwich", attention=block.attention, mlp=block.mlp)


def test_marks_of_a_layer_stand_in_its_scope():
    model = make_model(dataclasses.replace(CONFIG, embedding_norm=True))
    program, _ = trace(model.hidden, jnp.ones((3, 6), jnp.float64))
    found = {(site.key.name, ".".join(site.key.scope)) for site in program.places}
    for i in range(2):
        names = {name for name, scope in found if scope == f"layers.{i}"}
        assert {"attention.pattern", "norm_1.scale", "norm_2.scale", "mlp", "mlp.output.bias"} <= names
    outside = {name for name, scope in found if not scope}
    assert {"layer", "embedding_norm.scale", "final_norm.scale", "final_norm.offset"} <= outside
    assert {scope for _, scope in found} == {"", "layers.0", "layers.1"}


def test_a_skeleton_has_the_shapes_of_a_model():
    skeleton, model = nnx.eval_shape(lambda: Transformer(CONFIG, rngs=None)), Transformer(CONFIG, rngs=nnx.Rngs(0))
    for ours, theirs in zip(jax.tree.leaves(skeleton), jax.tree.leaves(model), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)


@pytest.mark.parametrize("family", [gpt2, bert])
@pytest.mark.parametrize("tied", [True, False])
def test_a_tensor_map_fills_every_parameter_once(family, tied):
    encoder = dataclasses.replace(CONFIG, segment_embedding=True, embedding_norm=True, final_norm=False, head="hidden")
    config = encoder if family is bert else dataclasses.replace(CONFIG, tied=tied)
    model = make_model(config)
    filled = [id(parameter_at(model, path)) for entry in family.tensor_map(config) for path in entry.parameters]
    assert len(set(filled)) == len(filled)
    assert set(filled) == {id(leaf) for _, leaf in nnx.iter_graph(model) if isinstance(leaf, nnx.Param)}
    stored = [entry.stored for entry in family.tensor_map(config)]
    assert len(set(stored)) == len(stored)


@pytest.mark.parametrize(
    ("transform", "values"),
    [
        (AS_IT_IS, [numbers(2, 3)]),
        (TRANSPOSED, [numbers(2, 3)]),
        (SIDE_BY_SIDE, [numbers(2, 3), numbers(2, 1, key=1), numbers(2, 4, key=2)]),
        (FIRST_ROW, [numbers(3)]),
    ],
)
def test_unpacking_undoes_packing(transform, values):
    shapes = [value.shape for value in values]
    stored = transform.pack([jnp.asarray(value) for value in values])
    assert all(a in (None, b) for a, b in zip(transform.shape(shapes), stored.shape, strict=True))
    for value, back in zip(values, transform.unpack(stored, shapes), strict=True):
        np.testing.assert_array_equal(value, back)
