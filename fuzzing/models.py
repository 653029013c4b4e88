"""Checkpoints that are drawn, and what they compute, from their files' numbers by NumPy in double precision.

Two families, one with learned positions and LayerNorm (GPT-2), one with rotary positions, RMSNorm, gates and shared
keys (Llama), of random sizes, activations and settings.
"""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from scipy import special

Numbers = np.ndarray
Tensors = dict[str, Numbers]

VOCAB, POSITIONS = 23, 12
WORDS = ["[UNK]", *(f"w{i}" for i in range(1, VOCAB))]
TOKENIZER = {
    "version": "1.0",
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": WORDS[0]},
}

ACTIVATIONS: dict[str, Callable[[Numbers], Numbers]] = {
    "gelu": lambda z: z * (1 + special.erf(z / 2**0.5)) / 2,
    "gelu_new": lambda z: z * (1 + np.tanh((2 / math.pi) ** 0.5 * (z + 0.044715 * z**3))) / 2,
    "relu": lambda z: np.maximum(z, 0),
    "silu": lambda z: z * special.expit(z),
    "tanh": np.tanh,
}
"""Activations by their names in a configuration."""


def _gpt2(chance: random.Random, numbers: np.random.Generator, positions: int) -> tuple[dict[str, Any], Tensors]:
    """Draw a configuration and weights of GPT-2's family."""
    heads = chance.choice((1, 2, 3))
    width, neurons, layers = heads * chance.choice((2, 4)), chance.choice((3, 8, 16)), chance.randint(1, 3)
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": width,
        "n_head": heads,
        "n_inner": neurons,
        "n_layer": layers,
        "n_positions": positions,
        "vocab_size": VOCAB,
        "activation_function": chance.choice(list(ACTIVATIONS)),
        "layer_norm_epsilon": chance.choice((1e-5, 1e-3, 1e-2)),
        "scale_attn_weights": chance.random() < 0.8,
        "scale_attn_by_inverse_layer_idx": chance.random() < 0.3,
        "tie_word_embeddings": True,
    }
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (VOCAB, width), "wpe.weight": (positions, width)}
    shapes |= {f"ln_f.{name}": (width,) for name in ("weight", "bias")}
    for i in range(layers):
        for norm in ("ln_1", "ln_2"):
            shapes |= {f"h.{i}.{norm}.{name}": (width,) for name in ("weight", "bias")}
        sizes = {"attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width)}
        sizes |= {"mlp.c_fc": (width, neurons), "mlp.c_proj": (neurons, width)}
        for name, shape in sizes.items():
            shapes |= {f"h.{i}.{name}.weight": shape, f"h.{i}.{name}.bias": shape[1:]}
    return config, {f"transformer.{name}": _weights(numbers, name, shape) for name, shape in shapes.items()}


def _llama(chance: random.Random, numbers: np.random.Generator, positions: int) -> tuple[dict[str, Any], Tensors]:
    """Draw a configuration and weights of Llama's family."""
    shared, groups, size = chance.choice((1, 2)), chance.choice((1, 2)), chance.choice((2, 4))
    heads, width = shared * groups, chance.choice((6, 8))
    neurons, layers = chance.choice((3, 8, 16)), chance.randint(1, 3)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": size,
        "intermediate_size": neurons,
        "num_hidden_layers": layers,
        "max_position_embeddings": positions,
        "vocab_size": VOCAB,
        "hidden_act": chance.choice(list(ACTIVATIONS)),
        "rms_norm_eps": chance.choice((1e-6, 1e-3, 1e-2)),
        "rope_theta": chance.choice((10.0, 10_000.0)),
        "tie_word_embeddings": False,
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, width),
        "model.norm.weight": (width,),
        "lm_head.weight": (VOCAB, width),
    }
    for i in range(layers):
        sizes: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj": (heads * size, width),
            "self_attn.o_proj": (width, heads * size),
        }
        sizes |= {f"self_attn.{name}_proj": (groups * size, width) for name in "kv"}
        sizes |= {f"mlp.{name}_proj": (neurons, width) for name in ("gate", "up")} | {"mlp.down_proj": (width, neurons)}
        sizes |= {"input_layernorm": (width,), "post_attention_layernorm": (width,)}
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in sizes.items()}
    return config, {name: _weights(numbers, name, shape) for name, shape in shapes.items()}


def _weights(numbers: np.random.Generator, name: str, shape: tuple[int, ...]) -> Numbers:
    is_scale = name.endswith("weight") and len(shape) == 1
    return (is_scale + numbers.normal(size=shape) * (0.3 if len(shape) == 1 else 0.6)).astype(np.float32)


def write(directory: Path, seed: int, positions: int = POSITIONS) -> None:
    """Draw a checkpoint, and write its directory.

    Args:
        directory: where it goes.
        seed: what decides.
        positions: the longest text, in tokens.
    """
    chance, numbers = random.Random(seed), np.random.default_rng(seed)
    config, tensors = chance.choice((_gpt2, _llama))(chance, numbers, positions)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (directory / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
    # Without it a tokenizer of the family's own class is expected.
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}', encoding="utf-8")
    save_file(tensors, directory / "model.safetensors")


def _normalised(x: Numbers, epsilon: float) -> Numbers:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)


def _attended(q: Numbers, k: Numbers, v: Numbers, scale: float) -> Numbers:
    """Return what causal attention reads, of `[tokens, heads, head_features]`."""
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
    pattern = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", pattern / pattern.sum(-1, keepdims=True), v).reshape(len(q), -1)


def _rotated(x: Numbers, theta: float) -> Numbers:
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None, None] * theta ** -(np.arange(half) / half)
    cos, sin = (f(angles).astype(x.dtype) for f in (np.cos, np.sin))
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def _gpt2_logits(config: dict[str, Any], w: Tensors, ids: Numbers) -> Numbers:
    w = {name.removeprefix("transformer."): tensor for name, tensor in w.items()}
    heads, activation = config["n_head"], ACTIVATIONS[config["activation_function"]]
    size = config["n_embd"] // heads

    def norm(x: Numbers, name: str) -> Numbers:
        centred = x - x.mean(-1, keepdims=True)
        return _normalised(centred, config["layer_norm_epsilon"]) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: Numbers, name: str) -> Numbers:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][ids] + w["wpe.weight"][: len(ids)]
    for i in range(config["n_layer"]):
        q, k, v = (
            part.reshape(len(ids), heads, size)
            for part in np.split(linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), 3, -1)
        )
        scale = size**-0.5 if config["scale_attn_weights"] else 1.0
        scale /= i + 1 if config["scale_attn_by_inverse_layer_idx"] else 1
        x = x + linear(_attended(q, k, v, scale), f"h.{i}.attn.c_proj")
        hidden = activation(linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"))
        x = x + linear(hidden, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def _llama_logits(config: dict[str, Any], w: Tensors, ids: Numbers) -> Numbers:
    heads, groups, size = (config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    activation, epsilon = ACTIVATIONS[config["hidden_act"]], config["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        part = {name: w[f"model.layers.{i}.{name}.weight"] for name in LLAMA_PARTS}
        read = _normalised(x, epsilon) * part["input_layernorm"]
        q, k, v = ((read @ part[f"self_attn.{name}_proj"].T).reshape(len(ids), -1, size) for name in "qkv")
        q, k = _rotated(q, config["rope_theta"]), _rotated(k, config["rope_theta"])
        k, v = (np.repeat(each, heads // groups, 1) for each in (k, v))
        x = x + _attended(q, k, v, size**-0.5) @ part["self_attn.o_proj"].T
        read = _normalised(x, epsilon) * part["post_attention_layernorm"]
        hidden = activation(read @ part["mlp.gate_proj"].T) * (read @ part["mlp.up_proj"].T)
        x = x + hidden @ part["mlp.down_proj"].T
    return (_normalised(x, epsilon) * w["model.norm.weight"]) @ w["lm_head.weight"].T


LLAMA_PARTS = (
    *("input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    *(f"self_attn.{name}_proj" for name in "qkvo"),
)


def double(array: Numbers) -> Numbers:
    """Return an array in double precision.

    Args:
        array: its numbers.
    """
    return array.astype(np.float64)


def read(directory: Path) -> Callable[..., Numbers]:
    """Return the forward pass of a checkpoint: the logits of every place, from token ids.

    A function of an array of weights decides in which numbers is computed; `double` if absent.

    Args:
        directory: the checkpoint's.
    """
    config = json.loads((directory / "config.json").read_bytes())
    tensors = load_file(directory / "model.safetensors")
    compute = {"gpt2": _gpt2_logits, "llama": _llama_logits}[config["model_type"]]

    def logits(ids: Any, numbers: Callable[[Numbers], Numbers] = double) -> Numbers:
        with np.errstate(all="ignore"):
            return compute(config, {name: numbers(array) for name, array in tensors.items()}, np.asarray(ids))

    return logits
