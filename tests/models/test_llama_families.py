"""Llama's relatives: every field of their configurations is used or refused by name, every tensor has its place."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close, numbers

import duat_jax as duat
from duat_jax.models.families.tensor_map import parameter_at
from duat_jax.models.loader import skeleton
from duat_jax.models.registry import FAMILIES

ABSENT = object()
SIZES = {
    "vocab_size": 13,
    "hidden_size": 8,
    "intermediate_size": 10,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "max_position_embeddings": 16,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
BASE = {
    "mistral": {**SIZES, "sliding_window": None},
    "qwen2": SIZES,
    "qwen3": SIZES,
    "gemma2": SIZES,
    "mixtral": {**SIZES, **EXPERTS},
    "gemma3_text": {**SIZES, "sliding_window_pattern": 2},
    "qwen3_moe": {**SIZES, **EXPERTS, "moe_intermediate_size": 6},
    "phi3": SIZES,
    "olmo2": SIZES,
    "gpt_oss": {**SIZES, **EXPERTS},
}
CLASSIFIERS = [name for name in BASE if name != "gemma3_text"]

COMMON = {
    "rms_norm_eps": 0.5,
    "rope_theta": 7.0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 7.0},
}
SCALED = {"rope_scaling": {"type": "linear", "factor": 2.0}}
LONG = {"type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0]}
LATER_WINDOWS = {
    "use_sliding_window": {"use_sliding_window": True, "sliding_window": 2, "max_window_layers": 0},
    "max_window_layers": {"use_sliding_window": True, "sliding_window": 2, "max_window_layers": 1},
    "layer_types": {
        "use_sliding_window": True,
        "sliding_window": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}
GEMMA = {
    "hidden_activation": "relu",
    "query_pre_attn_scalar": 3.0,
    "final_logit_softcapping": 0.5,
    "sliding_window": 2,
    "layer_types": {"sliding_window": 2, "layer_types": ["full_attention", "sliding_attention"]},
    "attention_bias": True,
    "tie_word_embeddings": False,
}
LLAMA = {"hidden_act": "relu", "tie_word_embeddings": True, "rope_scaling": SCALED["rope_scaling"]}
USED = {
    "mistral": {**COMMON, **LLAMA, "sliding_window": 2},
    "qwen2": {**COMMON, **LLAMA, **LATER_WINDOWS},
    "qwen3": {**COMMON, **LLAMA, **LATER_WINDOWS, "attention_bias": True},
    "gemma2": {**COMMON, **GEMMA, "attn_logit_softcapping": 0.1, "rope_scaling": SCALED["rope_scaling"]},
    "mixtral": {
        **COMMON,
        **LLAMA,
        "sliding_window": 2,
        "num_local_experts": 3,
        "num_experts": {"num_local_experts": ABSENT, "num_experts": 3},
        "num_experts_per_tok": 1,
    },
    "gemma3_text": {
        **COMMON,
        **GEMMA,
        "rope_parameters": {"full_attention": {"rope_theta": 7.0}},
        "rope_local_base_freq": 7.0,
        "rope_scaling": SCALED["rope_scaling"],
        "use_bidirectional_attention": True,
        "sliding_window_pattern": {"sliding_window": 2, "sliding_window_pattern": 1},
    },
    "qwen3_moe": {
        **COMMON,
        **LLAMA,
        "use_sliding_window": {"use_sliding_window": True, "sliding_window": 2},
        "attention_bias": True,
        "num_local_experts": 3,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 5,
        "norm_topk_prob": True,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [0],
        "intermediate_size": {"mlp_only_layers": [0], "intermediate_size": 5},
    },
    "phi3": {
        **COMMON,
        **LLAMA,
        "rope_scaling": {"rope_scaling": LONG, "original_max_position_embeddings": 8},
        "original_max_position_embeddings": {"rope_scaling": LONG, "original_max_position_embeddings": 4},
        "partial_rotary_factor": 0.5,
        "sliding_window": 2,
    },
    "olmo2": {**COMMON, **LLAMA, "attention_bias": True},
    "gpt_oss": {
        **COMMON,
        **{name: value for name, value in LLAMA.items() if name != "hidden_act"},
        "attention_bias": False,
        "sliding_window": 2,
        "layer_types": {"sliding_window": 2, "layer_types": ["full_attention", "sliding_attention"]},
        "num_local_experts": 3,
        "num_experts_per_tok": 1,
        "swiglu_limit": 0.1,
    },
}
"""What a field is changed to: a value, or fields that go together.  Every change is another computation."""

BIASES = {"attention_bias": True, "mlp_bias": True}
COMMON_REFUSED = {
    "is_causal": False,
    "per_layer_config": {"0": {"intermediate_size": 7}},
    "quantization_config": {"bits": 4},
    "pruned_heads": {"0": [1]},
    "clip_qkv": 8.0,
    "num_hidden_layers": 0,
    "hidden_act": "xielu",
}
CODE = {"auto_map": {"AutoModel": "modeling.Model"}, "partial_rotary_factor": 0.5}
GEMMA_REFUSED = {
    **{name: value for name, value in COMMON_REFUSED.items() if name != "hidden_act"},
    **CODE,
    "hidden_activation": "xielu",
}
REFUSED = {
    "mistral": {**COMMON_REFUSED, **CODE, "layer_types": ["full_attention"] * 2, "use_sliding_window": True},
    "qwen2": {**COMMON_REFUSED, **CODE, "use_mrope": True, "dual_chunk_attention_config": {"chunk_size": 4}},
    "qwen3": {**COMMON_REFUSED, **CODE, "layer_types": ["chunked_attention"] * 2},
    "gemma2": {**GEMMA_REFUSED, "use_bidirectional_attention": True, "sliding_window_size": 7},
    "mixtral": {**COMMON_REFUSED, **CODE, "layer_types": ["full_attention"] * 2},
    "gemma3_text": {**GEMMA_REFUSED, "attn_logit_softcapping": 50.0, "rope_parameters": {"rope_type": "linear"}},
    "qwen3_moe": {
        **COMMON_REFUSED,
        **CODE,
        "mlp_only_layers": [-1],
        "decoder_sparse_step": 0,
    },
    "phi3": {
        **COMMON_REFUSED,
        **BIASES,
        "lm_head_bias": True,
        "full_attn_mod": 2,
        "interpolate_factor": 2,
        "auto_map": {"AutoConfig": "another.Config"},
    },
    "olmo2": {**COMMON_REFUSED, **CODE, "sliding_window": 2},
    "gpt_oss": {**COMMON_REFUSED, **CODE, "swiglu_alpha": 2.0, "experts_per_token": 3},
}
"""What changes the computation, or could, and isn't supported."""


def read(directory, family, head=None, **changes):
    values = {"model_type": family, **BASE[family], **changes}
    values = {name: value for name, value in values.items() if value is not ABSENT}
    (directory / "config.json").write_text(json.dumps(values))
    return duat.load_config(directory, head=head)


def model_of(config):
    """Return a model whose parameters depend on their shapes and their order alone."""
    leaves, tree = jax.tree.flatten(skeleton(config, jnp.float64))
    random = np.random.default_rng(0)
    return jax.tree.unflatten(tree, [jnp.asarray(random.normal(size=leaf.shape)) for leaf in leaves])


def shapes(model):
    return [(jax.tree_util.keystr(path), leaf.shape) for path, leaf in jax.tree_util.tree_leaves_with_path(model)]


def logits(model):
    return np.asarray(model(jnp.array([3, 1, 4, 1, 5, 9])))


@functools.cache
def base(directory, family):
    config = read(directory, family)
    model = model_of(config)
    return config, shapes(model), logits(model)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return tmp_path_factory.mktemp("base")


@pytest.mark.parametrize(("family", "field"), [(family, field) for family in USED for field in USED[family]])
def test_a_field_is_used(shared, tmp_path, family, field):
    change = USED[family][field]
    together = isinstance(change, dict) and field in change
    config = read(tmp_path, family, **(change if together else {field: change}))
    before, parameters, expected = base(shared, family)
    assert config != before
    if family != "mistral" and field in {**COMMON, **LLAMA}:
        return  # the same part of another model
    model = model_of(config)
    if shapes(model) == parameters:
        assert np.abs(logits(model) - expected).max() > 1e-3


@pytest.mark.parametrize("family", BASE)
def test_every_size_is_used(tmp_path, family):
    sizes = dict(zip(SIZES, (11, 12, 13, 3, 15, 5, 6, 17), strict=True))
    config = read(tmp_path, family, **sizes, **({"mlp_only_layers": [0]} if family == "qwen3_moe" else {}))
    block = config.blocks[0]
    widths = (block.neurons, config.layers, block.heads, block.key_value_heads, block.head_features)
    assert (config.vocab, config.features, *widths, config.positions) == tuple(sizes.values())


@pytest.mark.parametrize("family", REFUSED)
def test_every_field_that_is_not_supported_is_refused_by_name_at_once(tmp_path, family, monkeypatch):
    monkeypatch.setattr("duat_jax.models.checkpoint.problems.SHOWN_PROBLEMS", 100)
    with pytest.raises(duat.BadCheckpoint) as raised:
        read(tmp_path, family, **REFUSED[family])
    assert [field for field in REFUSED[family] if field not in str(raised.value)] == []


@pytest.mark.parametrize(
    ("family", "field"), [(family, field) for family in REFUSED for field in sorted(REFUSED[family])]
)
def test_one_field_that_is_not_supported_is_refused(tmp_path, family, field):
    with pytest.raises(duat.BadCheckpoint, match=field):
        read(tmp_path, family, **{field: REFUSED[family][field]})


SLIDING = ["full_attention", "sliding_attention"]
WINDOWS = [
    ("mistral", {"sliding_window": ABSENT}, [4096] * 4),
    ("mistral", {"sliding_window": None}, [None] * 4),
    ("mixtral", {}, [None] * 4),
    ("mixtral", {"sliding_window": 3}, [3] * 4),
    ("qwen2", {"sliding_window": 3, "max_window_layers": 0}, [None] * 4),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 3}, [None, None, None, 3]),
    ("qwen3", {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 1}, [None] * 4),
    ("qwen3", {"use_sliding_window": True, "max_window_layers": 2}, [None, None, 4096, 4096]),
    ("qwen3", {"use_sliding_window": True, "sliding_window": 3, "layer_types": SLIDING * 2}, [None, 3, None, 3]),
    ("qwen3_moe", {"sliding_window": 3}, [None] * 4),
    ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 3}, [3] * 4),
    ("gemma2", {"sliding_window": 3}, [3, None, 3, None]),
    ("gemma2", {"layer_types": SLIDING * 2}, [None, 4096, None, 4096]),
    ("gemma3_text", {"sliding_window": 3, "sliding_window_pattern": 3}, [3, 3, None, 3]),
    ("gemma3_text", {"sliding_window": 8, "use_bidirectional_attention": True}, [5, None, 5, None]),
    ("phi3", {"sliding_window": 3}, [3] * 4),
    ("olmo2", {}, [None] * 4),
    ("gpt_oss", {"sliding_window": 3}, [3, None, 3, None]),
    ("gpt_oss", {}, [128, None, 128, None]),
]


@pytest.mark.parametrize(("family", "changes", "windows"), WINDOWS)
def test_windows_are_those_of_the_layers(tmp_path, family, changes, windows):
    config = read(tmp_path, family, num_hidden_layers=4, **changes)
    assert [block.window for block in config.blocks] == windows


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("qwen2", {"layer_types": SLIDING}),
        ("gemma2", {"sliding_window": None}),
        ("gemma3_text", {"sliding_window": None}),
    ],
)
def test_a_layer_with_a_window_of_no_size_is_refused(tmp_path, family, changes):
    with pytest.raises(duat.BadCheckpoint, match="sliding_attention, but there is no window"):
        read(tmp_path, family, **changes)


@pytest.mark.parametrize(
    ("changes", "bases"),
    [
        ({}, [1e4, 1e6]),
        ({"rope_theta": 5e5, "rope_local_base_freq": 5e3}, [5e3, 5e5]),
        ({"rope_parameters": {"full_attention": {"rope_theta": 5e5}}}, [1e4, 5e5]),
        ({"rope_parameters": {"sliding_attention": {"rope_theta": 5e3}}, "rope_theta": 5e5}, [5e3, 5e5]),
    ],
)
def test_each_kind_of_layer_has_rotary_positions_of_its_own(tmp_path, changes, bases):
    config = read(tmp_path, "gemma3_text", **changes)
    assert [block.rotary.frequencies[1] for block in config.blocks] == pytest.approx([base**-0.5 for base in bases])


def test_an_older_scaling_is_that_of_full_attention(tmp_path):
    plain, scaled = read(tmp_path, "gemma3_text"), read(tmp_path, "gemma3_text", **SCALED)
    assert scaled.blocks[0].rotary == plain.blocks[0].rotary
    assert scaled.blocks[1].rotary.frequencies == tuple(f / 2 for f in plain.blocks[1].rotary.frequencies)


def test_rotary_positions_may_be_scaled_where_nothing_is_said(tmp_path):
    yarn = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}
    silent = read(tmp_path, "gpt_oss")
    assert silent == read(tmp_path, "gpt_oss", rope_scaling=yarn) == read(tmp_path, "gpt_oss", rope_scaling=None)
    assert silent != read(tmp_path, "gpt_oss", rope_parameters={"rope_type": "default"})


@pytest.mark.parametrize("kind", ["su", "yarn"])
def test_other_names_of_a_scaling_say_the_same(tmp_path, kind):
    assert read(tmp_path, "phi3", rope_scaling={**LONG, "type": kind}) == read(tmp_path, "phi3", rope_scaling=LONG)


@pytest.mark.parametrize("inside", [{}, {"original_max_position_embeddings": 8}])
def test_an_original_context_that_is_not_said_is_the_usual_one(tmp_path, inside):
    config = read(tmp_path, "phi3", max_position_embeddings=8192, rope_scaling=LONG | inside)
    assert config.blocks[0].rotary.longer.original == 4096


@pytest.mark.parametrize("field", ["attn_logit_softcapping", "final_logit_softcapping"])
def test_a_cap_that_is_null_is_no_cap(tmp_path, field):
    config, without = read(tmp_path, "gemma2"), read(tmp_path, "gemma2", **{field: None})
    assert (config.blocks[0].score_cap, config.head.cap) == (50.0, 30.0)
    assert (without.blocks[0].score_cap, without.head.cap) == (
        (None, 30.0) if field == "attn_logit_softcapping" else (50.0, None)
    )


HEADS = [("next token", True), ("next token", False), ("hidden", True), ("classes", True)]


@pytest.mark.parametrize("family", BASE)
def test_a_tensor_map_fills_every_parameter_once(tmp_path, family):
    changes = {"mlp_only_layers": [0]} if family == "qwen3_moe" else {}
    for head, tied in HEADS if family in CLASSIFIERS else HEADS[:3]:
        config = read(tmp_path, family, head, tie_word_embeddings=tied, **changes)
        table, model = FAMILIES[family].tensor_map(config), skeleton(config, jnp.float32)
        filled = [id(parameter_at(model, path)) for entry in table for path in entry.parameters]
        assert len(set(filled)) == len(filled)
        assert set(filled) == {id(leaf) for _, leaf in nnx.iter_graph(model) if isinstance(leaf, nnx.Param)}
        names = [name for entry in table for name in entry.names]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text"])
def test_gemmas_scale_embeddings_and_store_weights_of_norms_less_one(tmp_path, family):
    model, ids = model_of(read(tmp_path, family)), jnp.array([3, 1, 4])
    close(model.embed(ids), np.sqrt(SIZES["hidden_size"]) * np.asarray(model.embedding.token[...])[np.asarray(ids)])
    norm, x = model.final_norm, numbers(3, 8)
    close(norm(jnp.asarray(x)), x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * (1 + np.asarray(norm.scale[...])))


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_a_classifier_reads_uncapped_logits_at_the_last_token(tmp_path, family):
    head = read(tmp_path, family, "classes", id2label={"0": "no", "1": "yes", "2": "maybe"}).head
    assert (head.labels, head.outputs, head.pool, head.cap, head.bias) == (
        ("no", "yes", "maybe"),
        3,
        "last",
        None,
        False,
    )
