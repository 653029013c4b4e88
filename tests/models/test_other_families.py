"""Encoders, vision models, older decoders: every field of `config.json` is used or refused, every tensor is read."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close
from parity.families import FAMILIES as CASES
from parity.family import ABSENT
from safetensors.numpy import save_file

import duat_jax as duat
from duat_jax.models.checkpoint.reference_fields import reference_of
from duat_jax.models.families.tensor_map import parameter_at
from duat_jax.models.loader import skeleton
from duat_jax.models.registry import FAMILIES

NAMES = ("bert", "roberta", "distilbert", "gpt_neox", "vit", "gptj", "opt", "albert", "modernbert")
NAMES += ("starcoder2", "smollm3", "olmo3", "gemma", "phi", "stablelm", "xlm-roberta", "granite", "cohere")
NAMES += ("camembert", "electra", "gpt_bigcode", "gpt_neo", "ministral", "seed_oss", "helium", "ernie4_5", "exaone4")
NAMES += ("glm", "glm4", "cohere2", "olmoe", "granitemoe", "gemma3")


def write(directory, family, changes, head=None):
    """Write the `config.json` of a family's base case with some fields changed, and return its directory."""
    case = CASES[family]
    architecture = case.heads[head or next(iter(case.heads))]
    values = {"model_type": family, "architectures": [architecture], **case.base, **changes}
    values = {name: value for name, value in values.items() if value is not ABSENT}
    (directory / "config.json").write_text(json.dumps(values))
    return directory


REFUSED = {
    "bert": {"head_dim": 3, "directionality": "left-to-right", "layer_types": ["full_attention"] * 2},
    "roberta": {"is_decoder": True, "position_embedding_type": "relative_key", "embedding_size": 8},
    "distilbert": {"layer_norm_eps": 1e-5, "add_cross_attention": True, "pruned_heads": {"0": [1]}},
    "gpt_neox": {"rope_theta": 5.0, "partial_rotary_factor": 0.5, "head_dim": 4, "sliding_window": 4},
    "vit": {"head_dim": 8, "position_embedding_type": "relative_key", "pruned_heads": {"0": [1]}},
    "gptj": {"scale_attn_weights": False, "rotary": False, "rotary_dim": None, "rope_theta": 100.0},
    "opt": {"word_embed_proj_dim": 10, "layer_norm_elementwise_affine": False},
    "albert": {"inner_group_num": 2, "is_decoder": True, "position_embedding_type": "relative_key"},
    "starcoder2": {"mlp_type": "gated", "norm_type": "rms_norm"},
    "smollm3": {"partial_rotary_factor": 0.5, "query_pre_attn_scalar": 2.0, "clip_qkv": 8.0},
    "olmo3": {"rope_theta": 100.0, "clip_qkv": 8.0},
    "gemma": {"use_bidirectional_attention": True, "hidden_activation": "silu", "sliding_window": 4},
    "phi": {"qk_layernorm": True},
    "stablelm": {"qk_layernorm": True, "head_dim": 4},
    "xlm-roberta": {"is_decoder": True, "position_embedding_type": "relative_key", "embedding_size": 8},
    "granite": {"position_embedding_type": "nope"},
    "cohere": {"use_qk_norm": True, "sliding_window": 4},
    "camembert": {"is_decoder": True, "position_embedding_type": "relative_key", "embedding_size": 8},
    "electra": {"is_decoder": True, "position_embedding_type": "relative_key"},
    "gpt_bigcode": {"add_cross_attention": True, "position_embedding_type": "alibi", "sliding_window": 4},
    "gpt_neo": {"attention_types": [[["global", "nope"], 1]], "position_embedding_type": "rotary"},
    "ministral": {"use_sliding_window": True, "partial_rotary_factor": 0.5},
    "seed_oss": {"partial_rotary_factor": 0.5, "query_pre_attn_scalar": 2.0},
    "helium": {"partial_rotary_factor": 0.5, "query_pre_attn_scalar": 2.0},
    "ernie4_5": {"partial_rotary_factor": 0.5, "query_pre_attn_scalar": 2.0},
    "exaone4": {"partial_rotary_factor": 0.5, "use_qk_norm": True},
    "glm": {"query_pre_attn_scalar": 2.0, "position_embedding_type": "nope"},
    "glm4": {"query_pre_attn_scalar": 2.0, "position_embedding_type": "nope"},
    "cohere2": {"use_qk_norm": True, "position_embedding_type": "rope_neox"},
    "olmoe": {"clip_qkv": 8.0, "query_pre_attn_scalar": 2.0},
    "granitemoe": {"position_embedding_type": "nope", "query_pre_attn_scalar": 2.0},
    "gemma3": {"use_bidirectional_attention": True, "query_pre_attn_scalar": 2.0},
    "modernbert": {"rope_theta": 5.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "layer_norm_eps": 0.1},
}
"""Fields that change the computation, here or in other families, and that aren't supported."""

EITHER_WAY = ("distilbert", "vit", "albert", "modernbert")
"""Encoders of which the reference doesn't read `is_causal`."""


@pytest.mark.parametrize("family", NAMES)
def test_every_unsupported_field_is_refused_by_name_at_once(tmp_path, family):
    fields = REFUSED[family] | ({} if family in EITHER_WAY else {"is_causal": False})
    fields |= {
        "quantization_config": {"bits": 4},
        "auto_map": {"AutoModel": "a.B"},
    }
    with pytest.raises(duat.BadCheckpoint) as raised:
        duat.load_config(write(tmp_path, family, fields))
    assert [field for field in fields if field not in str(raised.value)] == []


_SIZES = {"intermediate_size": 20, "vocab_size": 70, "hidden_size": 24}
MORE = {
    "bert": {"type_vocab_size": 3, "max_position_embeddings": 30, "vocab_size": 70, "intermediate_size": 20},
    "roberta": {"type_vocab_size": 3, "max_position_embeddings": 30, "num_hidden_layers": 1},
    "distilbert": {"max_position_embeddings": 30, "hidden_dim": 20, "n_layers": 1, "dim": 20},
    "gpt_neox": {"intermediate_size": 20, "num_attention_heads": 1},
    "vit": {"num_hidden_layers": 1, "image_size": 16, "num_attention_heads": 2},
    "gptj": {"n_embd": 24, "n_head": 1, "n_layer": 1},
    "opt": {"ffn_dim": 20, "num_attention_heads": 2, "max_position_embeddings": 30},
    "albert": {"num_attention_heads": 2, "type_vocab_size": 3, "num_hidden_layers": 3},
    "starcoder2": _SIZES,
    "smollm3": _SIZES,
    "olmo3": _SIZES,
    "gemma": _SIZES,
    "phi": _SIZES,
    "stablelm": _SIZES | {"hidden_size": 32},
    "xlm-roberta": {"type_vocab_size": 3, "max_position_embeddings": 30, "num_hidden_layers": 1},
    "granite": _SIZES,
    "cohere": _SIZES,
    "camembert": {"type_vocab_size": 3, "max_position_embeddings": 30, "num_hidden_layers": 1},
    "electra": {"type_vocab_size": 3, "max_position_embeddings": 30, "vocab_size": 70, "intermediate_size": 20},
    "gpt_bigcode": {"n_embd": 24, "n_head": 1, "n_layer": 1},
    "gpt_neo": {"hidden_size": 24, "num_heads": 2, "vocab_size": 70},
    "ministral": _SIZES,
    "seed_oss": _SIZES,
    "helium": _SIZES,
    "ernie4_5": _SIZES,
    "exaone4": _SIZES,
    "glm": _SIZES,
    "glm4": _SIZES,
    "cohere2": _SIZES,
    "olmoe": _SIZES,
    "granitemoe": _SIZES,
    "gemma3": {},
    "modernbert": {"num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 20},
}
"""Sizes, which every reference has in its base case."""

USED = {
    family: {str(name): {name: value} for name, value in MORE[family].items()}
    | {name: changes for name, changes in CASES[family].switches.items() if not set(changes) & set(REFUSED[family])}
    for family in NAMES
}


@functools.cache
def program(written):
    """Return what a model computes, the constants in it, and which tensors it reads, from a `config.json`."""
    config = duat.load_config(written)
    image = config.image
    shape = (6,) if image is None else (image.channels, image.height, image.width)
    given = jax.ShapeDtypeStruct(shape, jnp.int32 if image is None else jnp.float64)
    traced = jax.make_jaxpr(lambda model, given: model(given))(skeleton(config, jnp.float64), given)
    constants = [np.asarray(constant).tolist() for constant in traced.consts]
    return str(traced), constants, [entry[:2] for entry in FAMILIES[config.family].tensor_map(config)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Return a function from a family to what its base case computes."""
    return functools.cache(lambda family: program(write(tmp_path_factory.mktemp(family), family, {})))


@pytest.mark.parametrize(("family", "switch"), [(family, switch) for family in NAMES for switch in USED[family]])
def test_every_other_field_changes_what_is_computed(tmp_path, base, family, switch):
    assert program(write(tmp_path, family, USED[family][switch])) != base(family)


@pytest.mark.parametrize("family", NAMES)
def test_harmless_fields_and_nulls_leave_the_computation_as_it_is(tmp_path, base, family):
    fields = dict.fromkeys((*REFUSED[family], "quantization_config")) | {"initializer_range": 0.5}
    fields |= {name: 0.5 for name in reference_of(family).read if "drop" in name}
    fields |= {"is_llama_config": True, "unsloth_fixed": True, "rope_interleaved": False, "use_mrope": False}
    fields.pop("rotary_dim", None)  # a null of which means something else than its absence
    with pytest.warns(UserWarning, match="config.json: fields that Hugging Face transformers doesn't read are ignored"):
        assert program(write(tmp_path, family, fields)) == base(family)


UNTIED, TIED = ({"tie_word_embeddings": tied} for tied in (False, True))


@pytest.mark.parametrize(
    ("family", "head", "changes"),
    [
        ("starcoder2", "logits", {"use_bias": False}),
        ("stablelm", "logits", {"use_parallel_residual": True, "use_qkv_bias": True}),
        ("phi", "logits", TIED),
        *((family, head, {}) for family in NAMES for head in CASES[family].heads),
        *((family, "masked", UNTIED) for family in ("bert", "roberta", "distilbert", "albert", "modernbert")),
        *((family, "logits", TIED) for family in ("gpt_neox", "gptj")),
        ("gpt_neox", "logits", {"attention_bias": False}),
        ("vit", "classes", {"qkv_bias": False}),
        ("opt", "logits", UNTIED),
        ("opt", "logits", {"enable_bias": False, "do_layer_norm_before": False}),
        ("albert", "masked", {"num_hidden_layers": 5, "num_hidden_groups": 3}),
        ("modernbert", "masked", {"norm_bias": True, "attention_bias": True, "mlp_bias": True}),
        ("modernbert", "masked", {"decoder_bias": False, "classifier_bias": True}),
    ],
)
def test_a_tensor_map_fills_every_parameter_once(tmp_path, family, head, changes):
    config = duat.load_config(write(tmp_path, family, changes, head))
    model, table = skeleton(config, jnp.float64), FAMILIES[family].tensor_map(config)
    filled = [id(parameter_at(model, path)) for entry in table for path in entry.parameters]
    assert len(set(filled)) == len(filled)
    assert set(filled) == {id(leaf) for _, leaf in nnx.iter_graph(model) if isinstance(leaf, nnx.Param)}
    stored = [name for entry in table for name in entry.names]
    assert len(set(stored)) == len(stored)
    if config.head.tied:
        assert set(FAMILIES[family].copies.values()) <= set(stored)


@pytest.mark.parametrize(
    ("family", "field", "masked", "pooled"),
    [
        ("bert", "hidden_act", "silu", "tanh"),
        ("roberta", "hidden_act", "gelu", "tanh"),
        ("distilbert", "activation", "silu", "relu"),
        ("albert", "hidden_act", "silu", "tanh"),
        ("modernbert", "hidden_activation", "gelu", "gelu"),
        ("modernbert", "classifier_activation", "silu", "silu"),
    ],
)
def test_the_head_has_its_own_activation(tmp_path, family, field, masked, pooled):
    for head, expected in (("masked", masked), ("classes", pooled)):
        assert duat.load_config(write(tmp_path, family, {field: "silu"}, head)).head.dense == expected


def random_checkpoint(directory, **given):
    """Add random tensors to a `config.json`, some of them given, and return them and the model in double precision."""
    config = duat.load_config(directory)
    model, random, tensors = skeleton(config, jnp.float64), np.random.default_rng(0), {}
    for entry in FAMILIES[config.family].tensor_map(config):
        shapes = [parameter_at(model, path).shape for path in entry.parameters]
        for name, shape in zip(entry.names, entry.transform.shapes(shapes), strict=True):
            tensors[name] = random.normal(size=shape)
    save_file(tensors | given, directory / "model.safetensors")
    return tensors, duat.load(directory, dtype=jnp.float64)


def test_places_are_counted_from_the_row_after_the_padding_token(tmp_path):
    tensors, model = random_checkpoint(
        write(tmp_path, "roberta", {"pad_token_id": 3, "max_position_embeddings": 16}, "hidden")
    )
    assert model.config.positions == 16 - 3 - 1
    text, rows = np.array([9, 8, 3, 7, 3, 6]), np.array([4, 5, 3, 6, 3, 7])
    expected = sum(
        tensors[f"embeddings.{name}_embeddings.weight"][row]
        for name, row in (("word", text), ("position", rows), ("token_type", 0))
    )
    close(model.embed(jnp.asarray(text)), expected)


def test_no_place_after_the_padding_token_is_an_error(tmp_path):
    with pytest.raises(
        duat.BadCheckpoint, match="max_position_embeddings = 16 leaves no place after pad_token_id = 15"
    ):
        duat.load_config(write(tmp_path, "roberta", {"pad_token_id": 15, "max_position_embeddings": 16}))


@pytest.mark.parametrize(
    ("family", "decoder", "repeated"),
    [
        ("bert", "cls.predictions.decoder", "cls.predictions.bias"),
        ("roberta", "lm_head.decoder", "lm_head.bias"),
        ("albert", "predictions.decoder", "predictions.bias"),
    ],
)
def test_the_bias_of_an_untied_decoder_is_used_and_not_the_one_it_used_to_repeat(tmp_path, family, decoder, repeated):
    directory = write(tmp_path, family, {"tie_word_embeddings": False}, "masked")
    tensors, model = random_checkpoint(directory, **{repeated: np.full(61, np.nan)})
    np.testing.assert_array_equal(model.head.bias[...], tensors[f"{decoder}.bias"])
    np.testing.assert_array_equal(model.head.unembedding[...], tensors[f"{decoder}.weight"])


def test_layers_of_a_group_share_their_parameters(tmp_path):
    fields = {"num_hidden_layers": 5, "num_hidden_groups": 2}
    tensors, model = random_checkpoint(write(tmp_path, "albert", fields, "hidden"))
    assert model.config.groups == (0, 0, 0, 1, 1)  # the whole number below i / (5 / 2)
    for group, block in zip(model.config.groups, model.stack.blocks, strict=True):
        kernel = tensors[f"encoder.albert_layer_groups.{group}.albert_layers.0.ffn.weight"].T
        np.testing.assert_array_equal(block.mlp.input.kernel[...], kernel)
    places = [block.mlp.input.kernel[...].unsafe_buffer_pointer() for block in model.stack.blocks]
    assert [places.index(place) for place in places] == [0, 0, 0, 3, 3]  # each is in memory once


@pytest.mark.parametrize(
    ("rotary_dim", "problem"), [(3, "rotary_dim = 3 isn't a number of pairs"), (10, "rotary turns 10 features")]
)
def test_a_head_is_turned_in_pairs_and_no_further_than_it_reaches(tmp_path, rotary_dim, problem):
    with pytest.raises(duat.BadCheckpoint, match=problem):
        duat.load_config(write(tmp_path, "gptj", {"rotary_dim": rotary_dim}))


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "truncate": False}


@pytest.mark.parametrize("family", ["gemma3_text", "olmo3", "modernbert"])
@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters"])
def test_yarn_that_is_not_truncated_is_refused_where_each_kind_of_layers_has_its_own(tmp_path, family, field):
    """The reference doesn't read it there."""
    scaling = YARN if field == "rope_scaling" else {"full_attention": YARN}
    with pytest.raises(duat.BadCheckpoint, match=field):
        duat.load_config(write(tmp_path, family, {field: scaling}))


def test_more_groups_than_layers_are_an_error(tmp_path):
    with pytest.raises(duat.BadCheckpoint, match="num_hidden_groups = 3 is more than num_hidden_layers = 2"):
        duat.load_config(write(tmp_path, "albert", {"num_hidden_groups": 3}))


def test_a_token_sees_half_of_the_local_window_to_each_side(tmp_path):
    config = duat.load_config(write(tmp_path, "modernbert", {"local_attention": 6, "num_hidden_layers": 7}))
    full = [(block.window, block.norm_1) for block in config.blocks]
    assert full == [(None, False), (4, True), (4, True), (None, True), (4, True), (4, True), (None, True)]
    assert [block.rotary.frequencies[1] for block in config.blocks[:2]] == [160_000**-0.25, 10_000**-0.25]


def test_an_image_is_a_pair_of_sides_or_one(tmp_path):
    config = duat.load_config(write(tmp_path, "vit", {"image_size": [8, 12], "patch_size": [4, 2]}))
    assert (config.image.height, config.image.width, config.positions) == (8, 12, 2 * 6 + 1)
    assert duat.load_config(write(tmp_path, "vit", {"image_size": 8, "patch_size": 4})).positions == 5
    with pytest.raises(duat.BadCheckpoint, match="patch_size = 9 × 9 is larger than image_size = 8 × 8"):
        duat.load_config(write(tmp_path, "vit", {"image_size": 8, "patch_size": 9}))
    with pytest.raises(duat.BadCheckpoint, match=r"image_size must be .*, or two, not \[8, 8, 8\]"):
        duat.load_config(write(tmp_path, "vit", {"image_size": [8, 8, 8]}))


def test_images_are_read_alone_and_in_batches(tmp_path):
    tensors, model = random_checkpoint(write(tmp_path, "vit", {"patch_size": [4, 6]}, "classes"))
    pixels = jnp.asarray(np.random.default_rng(1).normal(size=(2, 3, 12, 12)))
    weight, bias = (tensors[f"embeddings.patch_embeddings.projection.{name}"] for name in ("weight", "bias"))
    patch = np.einsum("fchw,chw->f", weight, pixels[0, :, 4:8, 6:]) + bias
    close(model.embed(pixels[0])[4], patch + tensors["embeddings.position_embeddings"][0, 4])
    close(
        model.embed(pixels[0])[0], (tensors["embeddings.cls_token"] + tensors["embeddings.position_embeddings"])[0, 0]
    )
    close(model.embed(pixels)[1], model.embed(pixels[1]))
    assert jax.eval_shape(model, pixels).shape == (2, 3)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"final_logit_softcapping": 2.0}, "final_logit_softcapping = 2.0"),  # the reference's wrapper doesn't apply it
        ({"model_type": "llama"}, "model_type = 'llama' isn't supported, only 'gemma3_text' is"),
        ({"use_bidirectional_attention": None, "hidden_size": None}, "hidden_size must be a positive whole number"),
    ],
)
def test_what_is_wrong_with_the_text_config_of_a_wrapper_is_named(tmp_path, changes, problem):
    text_config = CASES["gemma3"].base["text_config"] | changes
    with pytest.raises(duat.BadCheckpoint, match=problem):
        duat.load_config(write(tmp_path, "gemma3", {"text_config": text_config}))


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
def test_a_wrapper_is_read_by_its_older_names_and_by_its_newer_ones(tmp_path, prefix):
    directory = write(tmp_path, "gemma3", UNTIED)
    tensors, _ = random_checkpoint(directory)
    head = "lm_head.weight" if prefix.startswith("model") else "language_model.lm_head.weight"
    renamed = {head if name == "lm_head.weight" else prefix + name: value for name, value in tensors.items()}
    save_file(renamed | {"vision_tower.embedding.weight": np.ones(3)}, directory / "model.safetensors")
    model = duat.load(directory, dtype=jnp.float64)
    np.testing.assert_array_equal(model.embedding.token[...], tensors["embed_tokens.weight"])
    np.testing.assert_array_equal(model.head.unembedding[...], tensors["lm_head.weight"])


@pytest.mark.parametrize(
    "given",
    [
        5,
        [5],
        {"global": 1},
        [[["global"], 10**12]],
        [[[], 10**12]],
        [[[["global"], "local"], 1]],
        [[["global"], 1.5]],
        [["global", 1]],
        [[["global", "local"], 2]],
    ],
    ids=str,
)
def test_turns_of_attention_that_do_not_give_a_kind_for_each_layer_are_refused(tmp_path, given):
    problem = "attention_types must give global or local for each of 2 layers"
    with pytest.raises(duat.BadCheckpoint, match=problem):
        duat.load_config(write(tmp_path, "gpt_neo", {"attention_types": given}))


def test_kinds_of_attention_by_layer_go_before_turns(tmp_path):
    """The reference's own list, which checkpoints have too, replaces what the turns give."""
    changes = {"attention_layers": ["local", "global"], "window_size": 3}
    config = duat.load_config(write(tmp_path, "gpt_neo", changes))
    assert [block.window for block in config.blocks] == [3, None]
