"""Checkpoints of every family as llama.cpp's converter writes them in GGUF files: names, layouts, keys and types."""

import math
import re

import gguf
import numpy as np

from tests.containers import STORED, add_value

STEMS = {name.removeprefix("model."): stem for name, stem in STORED.items()}
"""The names of a decoder's parts in a GGUF file, by their names in a checkpoint without its first word."""

GEMMA3 = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
OLMO = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
GLM4 = {
    "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm",
    "mlp.gate_up_proj": "ffn_up",
}
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


SLIDING = {"attention.sliding_window": "sliding_window"}
SCALES = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
ORIGINAL = {"rope.scaling.original_context_length": "original_max_position_embeddings"}
ROUTER = {"mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp"}
EXPERTS = {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"}
WIDTH = {"expert_feed_forward_length": "moe_intermediate_size"}
CAPS = {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}
YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32,
    "rope.scaling.yarn_beta_fast": 2.0,
    "rope.scaling.yarn_beta_slow": 1.0,
}
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
    "gpt_neox": ("gptneox", NEOX, apart, PARALLEL, {}, {}),
    "starcoder2": ("starcoder2", {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}, as_it_is, {}, {}, {}),
    "smollm3": ("smollm3", {}, alternating, {}, {}, {"no_rope_layers": None}),
    "olmo2": ("olmo2", OLMO, as_it_is, {}, {}, {}),
    "olmo3": ("olmo2", OLMO, as_it_is, SLIDING, {"attention.sliding_window_pattern": [True, False]}, {}),
    "gemma": ("gemma", {}, shifted, {}, {}, {}),
    "gemma3_text": ("gemma3", GEMMA3, shifted, SLIDING, {}, {"layer_types": None, "query_pre_attn_scalar": 8}),
    "phi": ("phi2", PHI, as_it_is, {}, {}, {}),
    "stablelm": ("stablelm", {}, as_it_is, PARALLEL, {}, {}),
    "granite": ("granite", {}, alternating, SCALES, {}, {}),
    "llama": ("llama", {}, alternating, {}, {}, {}),
    "mixtral": ("llama", ROUTER, alternating, EXPERTS, {}, {}),
    "qwen2": ("qwen2", {}, as_it_is, {}, {}, {}),
    "qwen3": ("qwen3", {}, as_it_is, {}, {}, {}),
    "qwen3_moe": ("qwen3moe", ROUTER, as_it_is, EXPERTS | WIDTH, {}, {"norm_topk_prob": True}),
    "gemma2": ("gemma2", GEMMA3, shifted, CAPS | SLIDING, {}, {"query_pre_attn_scalar": 8}),
    "gpt_oss": (
        "gpt-oss",
        GPT_OSS,
        as_it_is,
        SLIDING | EXPERTS | {"expert_feed_forward_length": "intermediate_size"},
        YARN,
        {},
    ),
    "cohere": ("command-r", {}, as_it_is, {"logit_scale": "logit_scale"}, {}, {}),
    "cohere2": ("cohere2", {}, as_it_is, {"logit_scale": "logit_scale"} | SLIDING, {}, {"layer_types": None}),
    "seed_oss": ("seed_oss", {"post_attention_layernorm": "post_attention_norm"}, as_it_is, {}, {}, {}),
    "ernie4_5": ("ernie4_5", {}, as_it_is, {}, {}, {}),
    "exaone4": (
        "exaone4",
        OLMO,
        as_it_is,
        SLIDING,
        {"attention.sliding_window_pattern": [True, False]},
        {"layer_types": ["sliding_attention", "full_attention"]},
    ),
    "glm4": ("glm4", GLM4, as_it_is, {}, {}, {}),
    "olmoe": (
        "olmoe",
        ROUTER,
        as_it_is,
        {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"},
        {},
        {"norm_topk_prob": False},
    ),
}
"""Of each family its architecture, its own names, how its tensors are stored, its keys, and what it can't say."""


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
    share = config.get("partial_rotary_factor", rotary.get("partial_rotary_factor", config.get("rotary_pct")))
    width = config.get("head_dim") or features // heads
    experts = {"moe_intermediate_size": config.get("intermediate_size")} | config
    return ({} if share is None else {"rope.dimension_count": int(share * width)}) | {
        "context_length": config.get("max_position_embeddings", config.get("n_positions")),
        "embedding_length": features,
        "block_count": config.get("num_hidden_layers", config.get("n_layer")),
        "feed_forward_length": config.get("intermediate_size", 4 * features),
        "attention.head_count": heads,
        "attention.head_count_kv": config.get("num_key_value_heads", heads),
        "attention.key_length": width,
        "attention.value_length": width,
        f"attention.{norm}": config.get(epsilon, 1e-5),
        "rope.freq_base": float(rotary.get("rope_theta", config.get("rope_theta", 10_000.0))),
        "vocab_size": config["vocab_size"],
        **{key: experts[field] for key, field in fields.items()},
    }


FACTORS = {"rope_factors_long": "long_factor", "rope_factors_short": "short_factor"}


def in_layout(family, tensors, config, *, moved=False):
    """Return tensors by the names and in the layout of a GGUF file; entries are only moved, if so."""
    _, own, layout, *_ = FAMILIES[family]
    layout = as_it_is if moved and layout is shifted else layout
    stored, experts = {}, {}
    for full, tensor in (apart_by_part(tensors) if family == "gpt_oss" else tensors).items():
        if "pooler" in full:  # the converter leaves it out
            continue
        plain = re.sub(r"^(model|transformer|gpt_neox|bert)\.", "", full)
        pattern = r"(?:(?:encoder\.layer|layers|h)\.(\d+)\.)?(.+)\.(weight|bias)"
        layer, name, end = re.fullmatch(pattern, plain).groups()
        place = "" if layer is None else f"blk.{layer}."
        if expert := re.fullmatch(r".*\.experts\.(\d+)\.(\w+)", name):
            kind = {"w1": "gate", "w2": "down", "w3": "up"}.get(expert[2], expert[2].removesuffix("_proj"))
            experts.setdefault(f"{place}ffn_{kind}_exps.{end}", {})[int(expert[1])] = tensor
        else:
            stored[f"{place}{(STEMS | own)[name]}.{end}"] = layout(full, tensor, config)
    return stored | {name: np.stack([each[i] for i in sorted(each)]) for name, each in experts.items()}


SINGLE = re.compile(r".*(_norm|ffn_gate_inp|position_embd|token_types|attn_sinks)\.weight")
"""Matrices that the converter keeps in float32, as it does vectors."""

SCALES_AT = {"Q4_K": (slice(0, 2), slice(2, 4)), "Q6_K": (slice(208, 210),)}
"""Bytes of a block that are its scales, of types that the library reads and doesn't write."""


def encoded(name, tensor, kind):
    """Return a tensor's bytes in a storage type, and this type; of some types they are drawn at random."""
    if tensor.ndim == 1 or SINGLE.fullmatch(name):
        return tensor, gguf.GGMLQuantizationType.F32
    if kind.name not in SCALES_AT:
        return gguf.quantize(tensor, kind), kind
    entries, size = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(tensor.size)
    blocks = random.integers(0, 256, (tensor.size // entries, size), np.uint8)
    for place in SCALES_AT[kind.name]:
        blocks[:, place] = random.uniform(1e-4, 1e-2, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    return blocks.reshape(*tensor.shape[:-1], -1), kind


def write(path, family, config, tensors, kind=gguf.GGMLQuantizationType.F32):
    """Write a GGUF file of a checkpoint, with its matrices in a storage type."""
    architecture, _, _, fields, more, _ = FAMILIES[family]
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (keys_of(config, fields) | more).items():
        add_value(writer, f"{architecture}.{key}", value)
    for name, tensor in in_layout(family, tensors, config).items():
        stored, its_kind = encoded(name, tensor, kind)
        writer.add_tensor(name, stored, raw_dtype=its_kind)
    scaling = config.get("rope_scaling") or {}
    for name, field in FACTORS.items():
        if field in scaling:
            writer.add_tensor(f"{name}.weight", np.array(scaling[field], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
