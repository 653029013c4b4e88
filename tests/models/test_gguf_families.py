"""A golden checkpoint written as llama.cpp's converter writes its architecture is the same model."""

import json
import math
import re
import shutil

import gguf
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from containers import add_value, same
from helpers import near
from safetensors.numpy import load_file, save_file

import duat_jax as duat
from duat_jax.models.checkpoint.gguf_architectures import ARCHITECTURES, MIXTRAL, OLMO3
from duat_jax.models.checkpoint.gguf_settings import share_of
from duat_jax.models.registry import FAMILIES as KNOWN

STEMS = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""What the parts of a decoder are called in a GGUF file."""

GEMMA3 = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
OLMO = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
PHI = {"final_layernorm": "output_norm", "self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
GPT2 = {
    "wte": "token_embd",
    "wpe": "position_embd",
    "ln_f": "output_norm",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
BERT = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    **{f"attention.self.{part}": f"attn_{part[0]}" for part in ("query", "key", "value")},
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
PHI3 = {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
NEOX = {
    "embed_in": "token_embd",
    "final_layer_norm": "output_norm",
    "embed_out": "output",
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}


def as_it_is(name, tensor, config):
    return tensor


def alternating(name, tensor, config):
    """Let the rows of queries and keys alternate between the halves of what a rotation turns."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
    if heads is None:
        return tensor
    return tensor.reshape(config[heads], 2, -1, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def shifted(name, tensor, config):
    """Add to norms' weights the one that the model adds to them."""
    return tensor + 1 if name.endswith("norm.weight") else tensor


def transposed(name, tensor, config):
    """Transpose the layers' matrices."""
    return np.ascontiguousarray(tensor.T) if ".h." in name and tensor.ndim == 2 else tensor


def apart(name, tensor, config):
    """Put all heads' queries before all keys before all values."""
    if "query_key_value" not in name:
        return tensor
    by_head = tensor.reshape(config["num_attention_heads"], 3, -1, *tensor.shape[1:])
    return np.concatenate([by_head[:, part].reshape(-1, *tensor.shape[1:]) for part in range(3)])


SLIDING = {"attention.sliding_window": "sliding_window"}
SCALES = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
ORIGINAL = {"rope.scaling.original_context_length": "original_max_position_embeddings"}
PARALLEL = {"use_parallel_residual": "use_parallel_residual"}
FAMILIES = {
    "gpt2": ("gpt2", GPT2, transposed, {}, {}, {}),
    "bert": ("bert", BERT, as_it_is, {}, {"attention.causal": False, "pooling_type": 1}, {}),
    "phi3": ("phi3", PHI3, as_it_is, ORIGINAL, {"attention.sliding_window": 0}, {"sliding_window": None}),
    "phi3-longrope": (
        "phi3",
        PHI3,
        as_it_is,
        ORIGINAL,
        {"rope.scaling.attn_factor": (1 + math.log(64 / 8) / math.log(8)) ** 0.5},
        {},
    ),
    "gpt_neox": ("gptneox", NEOX, apart, PARALLEL, {"rope.dimension_count": 6}, {}),
    "starcoder2": ("starcoder2", {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}, as_it_is, {}, {}, {}),
    "smollm3": ("smollm3", {}, alternating, {}, {}, {"no_rope_layers": None}),
    "olmo2": ("olmo2", OLMO, as_it_is, {}, {}, {}),
    "olmo3": ("olmo2", OLMO, as_it_is, SLIDING, {"attention.sliding_window_pattern": [True, False]}, {}),
    "gemma": ("gemma", {}, shifted, {}, {}, {}),
    "gemma3_text": ("gemma3", GEMMA3, shifted, SLIDING, {}, {"layer_types": None, "query_pre_attn_scalar": 8}),
    "phi": ("phi2", PHI, as_it_is, {}, {"rope.dimension_count": 4}, {}),
    "stablelm": ("stablelm", {}, as_it_is, PARALLEL, {"rope.dimension_count": 2}, {}),
    "granite": ("granite", {}, alternating, SCALES, {}, {}),
    "cohere": ("command-r", {}, as_it_is, {"logit_scale": "logit_scale"}, {}, {}),
}
"""Of each family its architecture, its own names, how its tensors are stored, its keys, and what it can't say."""

WITHOUT_WINDOW = ("starcoder2",)
FACTORS = {"rope_factors_long": "long_factor", "rope_factors_short": "short_factor"}


def coarse(directory, family, changes):
    """Copy a golden checkpoint, whose entries lose nothing when one is added in float32, and return its parts."""
    shutil.copytree(GOLDEN / family, directory)
    config = json.loads((directory / "config.json").read_text()) | changes
    if family in WITHOUT_WINDOW:
        config["sliding_window"] = None
    (directory / "config.json").write_text(json.dumps(config))
    tensors = load_file(directory / "model.safetensors")
    tensors = {name: (tensor * 4096).round() / 4096 for name, tensor in tensors.items()}
    save_file(tensors, directory / "model.safetensors")
    return config, tensors


def keys_of(config, fields):
    """Return what a file says of every model, and of one of these fields."""
    rotary = config.get("rope_parameters") or {}
    rotary = rotary.get("full_attention", rotary)
    epsilon = next((name for name in config if "epsilon" in name or name.endswith("_eps")), "rms_norm_eps")
    norm = "layer_norm_rms_epsilon" if epsilon == "rms_norm_eps" else "layer_norm_epsilon"
    features, heads = (
        config.get("hidden_size", config.get("n_embd")),
        config.get("num_attention_heads", config.get("n_head")),
    )
    return {
        "context_length": config.get("max_position_embeddings", config.get("n_positions")),
        "embedding_length": features,
        "block_count": config.get("num_hidden_layers", config.get("n_layer")),
        "feed_forward_length": config.get("intermediate_size", 4 * features),
        "attention.head_count": heads,
        "attention.head_count_kv": config.get("num_key_value_heads", heads),
        "attention.key_length": config.get("head_dim") or features // heads,
        "attention.value_length": config.get("head_dim") or features // heads,
        f"attention.{norm}": config.get(epsilon, 1e-5),
        "rope.freq_base": float(rotary.get("rope_theta", config.get("rope_theta", 10_000.0))),
        "vocab_size": config["vocab_size"],
        **{key: config[field] for key, field in fields.items()},
    }


def write(path, family, config, tensors):
    """Write a GGUF file of a golden checkpoint."""
    architecture, own, layout, fields, more, _ = FAMILIES[family]
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (keys_of(config, fields) | more).items():
        add_value(writer, f"{architecture}.{key}", value)
    for full, tensor in tensors.items():
        if "pooler" in full:  # the converter leaves it out
            continue
        plain = re.sub(r"^(model|transformer|gpt_neox|bert)\.", "", full)
        layer, name, end = re.fullmatch(r"(?:(?:encoder\.layer|layers|h)\.(\d+)\.)?(.+)\.(weight|bias)", plain).groups()
        place = "" if layer is None else f"blk.{layer}."
        writer.add_tensor(f"{place}{(STEMS | own)[name]}.{end}", layout(full, tensor, config))
    scaling = config.get("rope_scaling") or {}
    for name, field in FACTORS.items():
        if field in scaling:
            writer.add_tensor(f"{name}.weight", np.array(scaling[field], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_a_golden_checkpoint_as_a_gguf_file_is_the_same_model(tmp_path, family):
    config, tensors = coarse(tmp_path / "directory", family, FAMILIES[family][-1])
    file = write(tmp_path / "a.gguf", family, config, tensors)
    stored, expected = duat.load(file, dtype=jnp.float64), duat.load(tmp_path / "directory", dtype=jnp.float64)
    assert stored.config.family == config["model_type"]
    assert same(stored, expected)
    for half in (jnp.bfloat16, jnp.float16):  # entries are rounded last, after all arithmetic
        assert same(duat.load(file, dtype=half), duat.load(tmp_path / "directory", dtype=half))
    text = jnp.array([3, 1, 4, 1, 5, 9])
    near(stored(text), expected(text), within=1e-5 * float(abs(expected(text)).max()))  # keys are stored as float32


GPT_OSS = {
    "post_attention_layernorm": "post_attention_norm",
    "self_attn.sinks": "attn_sinks",
    "mlp.router": "ffn_gate_inp",
    **{f"mlp.experts.{part}": f"ffn_{part}_exps" for part in ("gate", "up", "down")},
}


def apart_by_part(tensors):
    """Return a GPT-OSS's tensors with gates and factors apart, as the converter writes them."""
    found = {}
    for name, tensor in tensors.items():
        end = "bias" if name.endswith("_bias") else "weight"
        room = name.partition("experts.")[0] + "experts."
        if "experts.gate_up_proj" in name:
            gate, up = tensor[..., ::2], tensor[..., 1::2]
            found |= {f"{room}gate.{end}": gate, f"{room}up.{end}": up}
        elif "experts.down_proj" in name:
            found[f"{room}down.{end}"] = tensor
        else:
            found[f"{name}.weight" if name.endswith("sinks") else name] = tensor
    turned = ("gate.weight", "up.weight", "down.weight")
    return {
        name: np.ascontiguousarray(tensor.swapaxes(1, 2) if "experts" in name and name.endswith(turned) else tensor)
        for name, tensor in found.items()
    }


def test_a_gpt_oss_as_a_gguf_file_is_the_same_model(tmp_path, monkeypatch):
    fields = SLIDING | {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"}
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 32, "yarn_beta_fast": 2.0, "yarn_beta_slow": 1.0}
    more = {"expert_feed_forward_length": 24} | {f"rope.scaling.{key}": value for key, value in yarn.items()}
    monkeypatch.setitem(FAMILIES, "gpt_oss", ("gpt-oss", GPT_OSS, as_it_is, fields, more, {}))
    config, tensors = coarse(tmp_path / "directory", "gpt_oss", {})
    file = write(tmp_path / "a.gguf", "gpt_oss", config, apart_by_part(tensors))
    stored, expected = duat.load(file, dtype=jnp.float64), duat.load(tmp_path / "directory", dtype=jnp.float64)
    assert same(stored, expected)
    text = jnp.array([3, 1, 4, 1, 5, 9])
    near(stored(text), expected(text), within=1e-5 * float(abs(expected(text)).max()))


def test_a_roberta_is_refused_by_name(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "bert")
    writer.add_tokenizer_model("t5")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(duat.BadCheckpoint, match="is a RoBERTa"):
        duat.load_config(tmp_path / "a.gguf")


WITHOUT = {
    *("mistral", "gptj", "opt", "albert", "distilbert", "vit", "modernbert", "roberta", "xlm-roberta"),
    *("camembert", "electra", "gpt_bigcode", "gpt_neo", "ministral", "seed_oss", "helium", "ernie4_5", "exaone4"),
    *("glm", "glm4", "cohere2", "olmoe", "granitemoe", "gemma3"),
}
"""Families of which no GGUF file is read: a Mistral's is a Llama's, the others are in docs/explanation."""


def test_every_other_family_is_read_from_a_gguf_file():
    read = {architecture.model_type for architecture in (*ARCHITECTURES.values(), MIXTRAL, OLMO3)}
    assert read | WITHOUT == set(KNOWN) and not read & WITHOUT


def test_a_share_gives_the_number_again():
    for whole in range(1, 200):
        for part in range(1, whole + 1):
            assert int(whole * share_of(part, whole)) == part and share_of(part, whole) <= 1


def test_a_window_that_is_not_said_of_every_layer_is_refused(tmp_path):
    config, tensors = coarse(tmp_path / "directory", "olmo3", {})
    file = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(file, "olmo2")
    for key, value in keys_of(config, SLIDING).items():
        add_value(writer, f"olmo2.{key}", value)
    writer.add_array("olmo2.attention.sliding_window_pattern", [True])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(duat.BadCheckpoint, match="sliding_window_pattern = .* must say for each of 2 layers"):
        duat.load_config(file)
