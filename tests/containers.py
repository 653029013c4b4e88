"""Tiny decoders as checkpoint directories and as GGUF files, written as llama.cpp's converter writes them."""

import json
import re

import gguf
import jax
import numpy as np
from safetensors.numpy import save_file
from tokenizers import pre_tokenizers

FEATURES, HEADS, KEY_VALUE_HEADS, HEAD_FEATURES, NEURONS, VOCAB, LAYERS, EXPERTS = 16, 4, 2, 4, 32, 270, 2, 3

KEYS = {
    "context_length": 32,
    "embedding_length": FEATURES,
    "block_count": LAYERS,
    "feed_forward_length": NEURONS,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KEY_VALUE_HEADS,
    "attention.layer_norm_rms_epsilon": 1e-3,
    "rope.freq_base": 5000.0,
    "rope.dimension_count": HEAD_FEATURES,
    "vocab_size": VOCAB,
}
"""Metadata of a tiny decoder; whole numbers are stored in 32 bits, others as float32."""

CONFIG = {
    "max_position_embeddings": 32,
    "hidden_size": FEATURES,
    "num_hidden_layers": LAYERS,
    "intermediate_size": NEURONS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_VALUE_HEADS,
    "head_dim": HEAD_FEATURES,
    "rms_norm_eps": float(np.float32(1e-3)),
    "rope_theta": 5000.0,
    "vocab_size": VOCAB,
}
"""The same in the words of a `config.json`."""

STORED = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
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
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
}
"""The names of a decoder's parts in a GGUF file, by their names in a checkpoint."""

GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
"""What is called otherwise in a Gemma."""


def decoder(*parts, seed=0, biases=(), tied=True):
    """Return the tensors of a tiny decoder under Hugging Face's names.

    Args:
        parts: shapes of what stands in a layer beside attention, by name.
        seed: of the random entries.
        biases: linear layers with a bias.
        tied: whether the unembedding is the embedding.
    """
    inner = HEADS * HEAD_FEATURES
    layer = {
        "self_attn.q_proj": (inner, FEATURES),
        "self_attn.k_proj": (KEY_VALUE_HEADS * HEAD_FEATURES, FEATURES),
        "self_attn.v_proj": (KEY_VALUE_HEADS * HEAD_FEATURES, FEATURES),
        "self_attn.o_proj": (FEATURES, inner),
        "input_layernorm": (FEATURES,),
        "post_attention_layernorm": (FEATURES,),
    }
    for part in parts:
        layer |= part
    shapes = {"model.embed_tokens.weight": (VOCAB, FEATURES), "model.norm.weight": (FEATURES,)}
    shapes |= {} if tied else {"lm_head.weight": (VOCAB, FEATURES)}
    for i in range(LAYERS):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
        shapes |= {f"model.layers.{i}.{name}.bias": layer[name][:1] for name in biases}
    random = np.random.default_rng(seed)
    # So coarse that adding one to a norm's weight doesn't round.
    return {name: (random.normal(size=shape) * 64).round().astype(np.float32) / 64 for name, shape in shapes.items()}


GATED = {
    "mlp.gate_proj": (NEURONS, FEATURES),
    "mlp.up_proj": (NEURONS, FEATURES),
    "mlp.down_proj": (FEATURES, NEURONS),
}
QUERY_KEY_NORMS = {"self_attn.q_norm": (HEAD_FEATURES,), "self_attn.k_norm": (HEAD_FEATURES,)}
AROUND_MLP = {"pre_feedforward_layernorm": (FEATURES,), "post_feedforward_layernorm": (FEATURES,)}


def routed(room, gate, up, down):
    """Return the shapes of the experts' parts."""
    shapes = {f"{room}.gate": (EXPERTS, FEATURES)}
    for i in range(EXPERTS):
        shapes |= {f"{room}.experts.{i}.{part}": (NEURONS, FEATURES) for part in (gate, up)}
        shapes |= {f"{room}.experts.{i}.{down}": (FEATURES, NEURONS)}
    return shapes


def as_stored(tensors, *, permuted=False, shifted=False, names=STORED):
    """Return a decoder's tensors as llama.cpp's converter writes them, by a GGUF file's names."""
    stored = {}
    for full, tensor in tensors.items():
        layer, name, end = re.fullmatch(r"(?:model\.layers\.(\d+)\.)?(.+)\.(weight|bias)", full).groups()
        if permuted and name.endswith(("q_proj", "k_proj")):
            heads = HEADS if name.endswith("q_proj") else KEY_VALUE_HEADS
            tensor = tensor.reshape(heads, 2, -1, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)
        if shifted and name.endswith("norm"):
            tensor = tensor + 1
        place = "" if layer is None else f"blk.{layer}."
        if expert := re.fullmatch(r".*\.experts\.(\d+)\.(\w+)", name):
            kind = {"w1": "gate", "w2": "down", "w3": "up"}.get(expert[2], expert[2].removesuffix("_proj"))
            stored.setdefault(f"{place}ffn_{kind}_exps.{end}", []).append(tensor)
        else:
            stored[f"{place}{names[name]}.{end}"] = tensor
    return {name: np.stack(tensor) if isinstance(tensor, list) else tensor for name, tensor in stored.items()}


def write_gguf(path, architecture, tensors, *, kind=gguf.GGMLQuantizationType.F32, tokenizer=True, **keys):
    """Write a GGUF file.

    Args:
        path: the file.
        architecture: its name.
        tensors: its tensors.
        kind: what matrices are stored as.
        tokenizer: whether it has the tokenizer of `add_tokenizer`.
        **keys: values of other or the same keys of the architecture, `.` written `__`; left out where `None`.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (KEYS | {key.replace("__", "."): value for key, value in keys.items()}).items():
        add_value(writer, key if key.startswith(("general.", "tokenizer.")) else f"{architecture}.{key}", value)
    if tokenizer:
        add_tokenizer(writer)
    for name, tensor in tensors.items():
        if tensor.ndim > 1 and kind != gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, gguf.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_value(writer, key, value):
    """Add a value of the type that it has in llama.cpp's files; nothing for `None`."""
    match value:
        case None:
            return
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)


BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = ["Ġ t", "h e", "Ġt he", "1 2", "12 3", "' s", "' S"]
TOKENS = ["<|end|>", *BYTES, *(merge.replace(" ", "") for merge in MERGES), "xyz", "<tool>"]
"""No merger makes `xyz`."""


def add_tokenizer(writer, kind="smollm", merges=MERGES, tokens=TOKENS):
    """Add a tokenizer that merges bytes, with one special token and one that a user defined."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(kind)
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * (len(tokens) - 2) + [4])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)


def write_directory(path, tensors, **config):
    """Write a checkpoint directory without a tokenizer."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    save_file(tensors, path / "model.safetensors")
    return path


def leaves(model):
    """Return a model's parameters."""
    return jax.tree.leaves(model)


def same(a, b):
    """Return whether two models have the same parameters, to the last bit."""
    pairs = list(zip(leaves(a), leaves(b), strict=True))
    return len(pairs) > 5 and all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)
