"""Models and blocks are chosen part by part; what doesn't fit is named; a tensor map fills every parameter."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from flax import nnx
from helpers import close, far, near, numbers

import duat_jax as duat
from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config, Head, Image
from duat_jax.models.embedding import PatchEmbedding
from duat_jax.models.families.rotary import read_rotary
from duat_jax.models.families.tensor_map import (
    AS_IT_IS,
    SHARED,
    SIDE_BY_SIDE,
    TRANSPOSED,
    head_by_head,
    parameter_at,
    stacked,
    transposed,
)
from duat_jax.models.registry import FAMILIES
from duat_jax.models.transformer import Transformer
from duat_jax.nn import (
    ACTIVATIONS,
    Block,
    BlockConfig,
    Rotary,
    make_block,
    rotary_frequencies,
)
from duat_jax.transform.program import trace
from duat_jax.verification.networks import randomised

BLOCK = BlockConfig(arrangement="pre-norm", features=6, heads=2, neurons=8)
NEXT_TOKEN = Head(kind="next token", outputs=11, tied=True)
CONFIG = Config(family="test", blocks=(BLOCK, BLOCK), vocab=11, positions=8, head=NEXT_TOKEN)


def with_blocks(**change):
    return {"blocks": (dataclasses.replace(BLOCK, **change),) * 2}


def make_model(config, key=0):
    return randomised(Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(key)), key)


MASKED = Head(kind="masked token", outputs=11, tied=True, bias=True, dense="gelu", norm=True)
CLASSES = Head(kind="classes", outputs=3, bias=True, pool="first", dense="tanh")
CHOICES = [
    {},
    with_blocks(causal=False),
    {"position_embedding": False},
    {"position_offset": 2},
    {"position_offset": 2, "uncounted": 1},
    {"segments": 2},
    {"embedding_norm": True},
    {"embedding_features": 4, "head": MASKED},
    {"embedding_scale": 3.0},
    {"final_norm": False},
    {"head": Head()},
    {"head": dataclasses.replace(NEXT_TOKEN, tied=False, bias=True)},
    {"head": dataclasses.replace(NEXT_TOKEN, cap=2.0)},
    {"head": dataclasses.replace(NEXT_TOKEN, scale=0.25, cap=2.0)},
    {"head": MASKED},
    {"head": CLASSES},
    {"head": dataclasses.replace(CLASSES, pool="last", dense=None)},
    {"head": dataclasses.replace(CLASSES, pool="mean")},
    with_blocks(window=2),
    {"embedding_norm": True, "final_norm": False} | with_blocks(causal=False),
]


def places(config, ids):
    """The row of the position embedding that each token has."""
    if config.uncounted is None:
        return [config.position_offset + i for i in range(len(ids))]
    counted = [i for i, token in enumerate(ids) if token != config.uncounted]
    return [config.position_offset + (counted.index(i) if i in counted else -1) for i in range(len(ids))]


def layer_norm(norm, x):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + norm.epsilon)
    return x * np.asarray(norm.scale[...]) + np.asarray(norm.bias[...])


def linear(layer, x):
    return x @ np.asarray(layer.kernel[...]) + np.asarray(layer.bias[...])


def read_out(model, x):
    """What a head returns, from its parts."""
    head, of = model.head, model.config.head
    if of.kind == "hidden":
        return x
    x = np.broadcast_to(x.mean(0), x.shape) if of.pool == "mean" else x
    if of.dense is not None:
        x = np.asarray(ACTIVATIONS[of.dense](jnp.asarray(linear(head.dense, x))))
    x = layer_norm(head.norm, x) if of.norm else x
    rows = model.embedding.token if of.tied else head.unembedding
    logits = of.scale * x @ np.asarray(rows[...]).T + (np.asarray(head.bias[...]) if of.bias else 0)
    logits = logits if of.cap is None else of.cap * np.tanh(logits / of.cap)
    return logits if of.kind != "classes" else logits[{"first": 0, "last": -1, "mean": 1}[of.pool]]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_each_part_of_a_model_is_chosen_on_its_own(choice):
    config = dataclasses.replace(CONFIG, **choice)
    model, ids = make_model(config), jnp.array([3, 1, 4, 1, 5])
    x = config.embedding_scale * np.asarray(model.embedding.token[...])[np.asarray(ids)]
    if config.position_embedding:
        x = x + np.asarray(model.embedding.position[...])[np.array(places(config, ids.tolist()))]
    if config.segments:
        close(model.embed(ids, jnp.array([0, 0, 1, 1, 1]))[2:], x[2:] + np.asarray(model.embedding.segment[...])[1])
        x = x + np.asarray(model.embedding.segment[...])[0]
    close(model.embed(ids), x)
    x = layer_norm(model.embedding_norm, x) if config.embedding_norm else x
    x = linear(model.projection, x) if config.embedding_features else x
    x = jnp.asarray(x)
    for block in model.stack.blocks:
        x = block(x)
    x = layer_norm(model.final_norm, np.asarray(x)) if config.final_norm else np.asarray(x)
    close(model(ids), read_out(model, x))
    for found, present in (
        (model.embedding.position, config.position_embedding),
        (model.embedding.segment, config.segments),
        (model.embedding_norm, config.embedding_norm),
        (model.final_norm, config.final_norm),
        (model.head.unembedding, config.head.outputs and not config.head.tied),
        (model.head.bias, config.head.bias),
    ):
        assert (found is not None) == bool(present)
    parts = duat.decompose(lambda x: model.output(x).reshape(-1)[-1], model.embed(ids))
    assert parts.completeness.holds


def test_a_class_is_read_before_what_fills_a_text_up():
    head = dataclasses.replace(CLASSES, pool="last", filler=1)
    model = make_model(dataclasses.replace(CONFIG, head=head))
    ids = jnp.array([3, 1, 4, 1, 1])
    close(model(ids), model(ids[:3]))
    close(model(ids, jnp.arange(5) < 4), model(ids[:3]))
    assert far(model(ids[:4].at[3].set(2)), model(ids[:3]))
    with pytest.raises(duat.InvalidInput, match="ends with token 1, which fills texts up"):
        duat.explain(model, ids)


@pytest.mark.parametrize("pool", ["first", "last", "mean"])
def test_padding_says_nothing_to_a_classifier(pool):
    model = make_model(dataclasses.replace(CONFIG, head=dataclasses.replace(CLASSES, pool=pool)))
    ids = jnp.array([3, 1, 4, 1, 5])
    padded = jnp.array([3, 1, 4, 1, 5, 9, 9, 9])
    close(model(padded, jnp.arange(8) < 5), model(ids))


def test_an_image_is_read_patch_by_patch():
    image = Image(height=4, width=6, channels=2, patch_height=2, patch_width=2)
    head = Head(kind="classes", outputs=3, pool="first")
    blocks = (dataclasses.replace(BLOCK, causal=False),) * 2
    model = make_model(Config(family="test", blocks=blocks, vocab=0, positions=7, image=image, head=head))
    pixels, x = numbers(2, 4, 6), [np.asarray(model.embedding.whole[...])]
    for row, column in itertools.product(range(2), range(3)):
        patch = pixels[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].reshape(-1)
        x.append(linear(model.embedding.patch, patch))
    close(model.embed(jnp.asarray(pixels)), np.stack(x) + np.asarray(model.embedding.position[...]))
    close(model(jnp.asarray(np.stack([pixels, -pixels])))[0], model(jnp.asarray(pixels)))
    with pytest.raises(duat.InvalidInput, match=r"the image is of shape \[2, 6, 4\]"):
        model(jnp.zeros((2, 6, 4)))


def test_everything_wrong_with_a_configuration_is_said_at_once():
    block = dataclasses.replace(BLOCK, arrangement="sandwich", norm="batch", mlp="mixed", activation="xielu")
    head = Head(kind="words", outputs=2)
    with pytest.raises(duat.DuatError) as raised:
        Transformer(dataclasses.replace(CONFIG, blocks=(BLOCK, block), head=head, vocab=0), rngs=None)
    for words in ("'sandwich'", "norm = 'batch'", "mlp = 'mixed'", "'xielu'", "head.kind = 'words'", "vocab = 0"):
        assert words in str(raised.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heads": 4}, "heads = 4 must divide features = 6"),
        ({"heads": 0}, "heads = 0 must be positive"),
        ({"key_value_heads": 4}, "key_value_heads = 4 must divide heads = 2"),
        ({"rotary": Rotary(rotary_frequencies(4))}, "rotary turns 4 features, but a head has 3"),
        ({"attention": "sliced", "score_cap": 1.0}, "sliced attention has no score_cap"),
        ({"window": 0}, "window = 0"),
        ({"experts": 4}, "are required with mlp = 'experts'"),
        ({"mlp": "experts", "experts": 4}, "are required with mlp = 'experts'"),
        ({"mlp": "experts", "experts": 2, "chosen_experts": 3}, "chosen_experts = 3 is more than experts = 2"),
    ],
)
def test_sizes_that_do_not_fit_are_named(change, words):
    with pytest.raises(duat.DuatError, match=words):
        make_block(dataclasses.replace(BLOCK, **change), rngs=None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head": Head(tied=True)}, "no read-out"),
        ({"head": Head(kind="next token")}, "head.outputs = 0"),
        ({"head": Head(kind="classes", outputs=2)}, "head.pool = None"),
        ({"head": dataclasses.replace(CLASSES, tied=True)}, "for logits of tokens"),
        ({"head": dataclasses.replace(MASKED, dense="xielu")}, "head.dense = 'xielu'"),
        (with_blocks(norm="none"), "without a kind"),
        ({"blocks": ()}, "blocks is empty"),
        ({"blocks": (BLOCK, dataclasses.replace(BLOCK, features=8))}, "different features"),
        ({"image": Image(height=2, width=2, channels=1, patch_height=4, patch_width=4)}, "patches = 0"),
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


ENCODER = dataclasses.replace(CONFIG, segments=2, embedding_norm=True, final_norm=False)
UNTIED = dataclasses.replace(CONFIG, head=dataclasses.replace(NEXT_TOKEN, tied=False))


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("gpt2", CONFIG),
        ("gpt2", UNTIED),
        *(("bert", dataclasses.replace(ENCODER, head=head)) for head in (Head(), MASKED, CLASSES)),
    ],
)
def test_a_tensor_map_fills_every_parameter_once(family, config):
    model = make_model(config)
    filled = [
        id(parameter_at(model, path)) for entry in FAMILIES[family].tensor_map(config) for path in entry.parameters
    ]
    assert len(set(filled)) == len(filled)
    assert set(filled) == {id(leaf) for _, leaf in nnx.iter_graph(model) if isinstance(leaf, nnx.Param)}
    stored = [name for entry in FAMILIES[family].tensor_map(config) for name in entry.names]
    assert len(set(stored)) == len(stored)


THREE = [numbers(2, 4), numbers(2, 4, key=1), numbers(2, 4, key=2)]


@pytest.mark.parametrize(
    ("transform", "values"),
    [
        (AS_IT_IS, [numbers(2, 3)]),
        (TRANSPOSED, [numbers(2, 3)]),
        (TRANSPOSED, [numbers(3)]),
        (SIDE_BY_SIDE, [numbers(2, 3), numbers(2, 1, key=1), numbers(2, 4, key=2)]),
        (transposed(SIDE_BY_SIDE), [numbers(2, 3), numbers(2, 1, key=1)]),
        (transposed(SHARED), [numbers(2, 3)] * 2),
        (transposed(head_by_head(2)), THREE),
        (head_by_head(2), [x[0] for x in THREE]),
        (stacked(3), [numbers(3, 2, 5)]),
    ],
)
def test_unpacking_undoes_packing(transform, values):
    shapes = [value.shape for value in values]
    stored = transform.pack([jnp.asarray(value) for value in values])
    for expected, found in zip(transform.shapes(shapes), stored, strict=True):
        assert tuple(expected) == found.shape
    for value, back in zip(values, transform.unpack(stored, shapes), strict=True):
        np.testing.assert_array_equal(value, back)


def test_what_is_stored_head_by_head_is_taken_apart():
    stored = numbers(2, 3, 4, 5)  # heads, queries and keys and values, features of a head, inputs
    parts = transposed(head_by_head(2)).unpack([jnp.asarray(stored.reshape(24, 5))], [(5, 8)] * 3)
    for i, part in enumerate(parts):
        np.testing.assert_array_equal(part, stored[:, i].reshape(8, 5).T)


def test_a_patch_is_read_channel_by_channel_and_row_by_row():
    image = Image(channels=2, height=4, width=6, patch_height=2, patch_width=3)
    config = dataclasses.replace(duat.load_config(GOLDEN / "vit"), image=image, positions=5)
    embedding = PatchEmbedding(config, dtype=jnp.float64, rngs=nnx.Rngs(0))
    pixels = jnp.asarray(numbers(2, 4, 6))
    patches = [pixels[:, y : y + 2, x : x + 3].reshape(-1) for y in (0, 2) for x in (0, 3)]
    embedded = [embedding.whole[...], *(embedding.patch(patch) for patch in patches)]
    close(embedding(pixels), jnp.stack(embedded) + embedding.position[...])


def test_llama_3_turns_the_slow_pairs_slower_and_no_others():
    """With 64 tokens pairs of more than 4 turns stay, of less than one are slowed, and between them both are mixed."""
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling["original_max_position_embeddings"] = 64
    settings = Settings({"rope_scaling": scaling, "max_position_embeddings": 512})
    usual = 10_000.0 ** (-np.arange(4) / 4)
    share = (64 * usual[1] / (2 * np.pi) - 1) / 3
    expected = [usual[0], share * usual[1] + (1 - share) * usual[1] / 8, usual[2] / 8, usual[3] / 8]
    assert 0 < 64 * 0.01 / (2 * np.pi) < 1
    near(read_rotary(settings, 8).rotary.frequencies, expected, 1e-15)
