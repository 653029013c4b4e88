"""A GGUF file's metadata in the words of a Hugging Face `config.json`: a key is used, harmless, or refused by name."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.gguf_header import Header, Place
from duat_jax.models.checkpoint.problems import raise_problems, shown
from duat_jax.models.checkpoint.settings import LARGEST

SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
"""Sizes that every file gives, and what they are called in a `config.json`."""

_CAPS_AND_WINDOW = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention.sliding_window": "sliding_window",
}

_MIXTRAL_EXPERTS = {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"}

_EXPERTS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}

FACTORS = "rope_freqs.weight"
"""The tensor of the factors by which rotations are slowed down."""

HARMLESS_ROOMS = ("general.", "tokenizer.", "quantize.", "split.")
"""Where the file comes from, how it was quantised, how it was cut, and the tokenizer, which is read on its own."""

HARMLESS = ("rope.scaling.finetuned", "tensor_data_layout")
"""Whether the model was trained with its scaling; a remark on the layout that all files of a kind have in common."""

_LAYER = "model.layers.0."
_DECODER = [
    *("model.embed_tokens", "model.norm", "lm_head"),
    *(f"{_LAYER}self_attn.{part}_proj" for part in "qkvo"),
    *(f"{_LAYER}{norm}_layernorm" for norm in ("input", "post_attention")),
]
_GATED = [f"{_LAYER}mlp.{part}_proj" for part in ("gate", "up", "down")]
_ROUTED = [f"{_LAYER}mlp.gate", *(f"{_LAYER}mlp.experts.{part}_proj" for part in ("gate", "up", "down"))]
_MIXTRAL = [f"{_LAYER}block_sparse_moe.{part}" for part in ("gate", "experts.w1", "experts.w2", "experts.w3")]
_QUERY_KEY_NORMS = [f"{_LAYER}self_attn.{part}_norm" for part in "qk"]
_AROUND_MLP = [f"{_LAYER}{place}_feedforward_layernorm" for place in ("pre", "post")]


class Architecture(NamedTuple):
    """How an architecture's files are read.

    Args:
        kind: what the `gguf` library calls it.
        model_type: its name in a `config.json`.
        names: the first layer's and all other tensors in Hugging Face's names, without `.weight` or `.bias`.
        fields: keys beside those that all have, and what they are called in a `config.json`.
        rest: the other fields, which the architecture or its tensors say.
        permuted: whether rows of queries and keys alternate between the halves of what a rotation turns.
        shifted: whether norms' weights are stored with the one that the model adds to them.
    """

    kind: gguf.MODEL_ARCH
    model_type: str
    names: list[str]
    fields: dict[str, str]
    rest: Callable[[dict[str, Any], Header], dict[str, Any]]
    permuted: bool = False
    shifted: bool = False

    @property
    def experts(self) -> str | None:
        """The field of a `config.json` that says how many experts there are."""
        return self.fields.get("expert_count")


def _llama(config: dict[str, Any], header: Header) -> dict[str, Any]:
    return {
        "hidden_act": "silu",
        "attention_bias": "blk.0.attn_q.bias" in header.places,
        "mlp_bias": "blk.0.ffn_up.bias" in header.places,
    }


def _silu(config: dict[str, Any], header: Header) -> dict[str, Any]:
    return {"hidden_act": "silu"}


def _qwen3_moe(config: dict[str, Any], header: Header) -> dict[str, Any]:
    # Files of this architecture have experts in every layer, and the gates of those chosen sum to one.
    return {"hidden_act": "silu", "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}


def _gemma2(config: dict[str, Any], header: Header) -> dict[str, Any]:
    # The scale of the scores isn't in the file: of the three published sizes the largest, of 46 layers, has its own.
    largest = config["num_hidden_layers"] == 46
    scale = config["hidden_size"] // config["num_attention_heads"] if largest else config["head_dim"]
    return {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": scale}


ARCHITECTURES = {
    "llama": Architecture(gguf.MODEL_ARCH.LLAMA, "llama", _DECODER + _GATED, {}, _llama, permuted=True),
    "qwen2": Architecture(gguf.MODEL_ARCH.QWEN2, "qwen2", _DECODER + _GATED, {}, _silu),
    "qwen3": Architecture(gguf.MODEL_ARCH.QWEN3, "qwen3", _DECODER + _GATED + _QUERY_KEY_NORMS, {}, _silu),
    "qwen3moe": Architecture(
        gguf.MODEL_ARCH.QWEN3MOE, "qwen3_moe", _DECODER + _ROUTED + _QUERY_KEY_NORMS, _EXPERTS, _qwen3_moe
    ),
    "gemma2": Architecture(
        gguf.MODEL_ARCH.GEMMA2, "gemma2", _DECODER + _GATED + _AROUND_MLP, _CAPS_AND_WINDOW, _gemma2, shifted=True
    ),
}
"""What is read, by `general.architecture`."""

MIXTRAL = Architecture(gguf.MODEL_ARCH.LLAMA, "mixtral", _DECODER + _MIXTRAL, _MIXTRAL_EXPERTS, _silu, permuted=True)
"""What a llama with experts is read as."""


def architecture_of(path: Path, metadata: Mapping[str, Any]) -> Architecture:
    """Return how a file is read.

    Args:
        path: the file, for messages.
        metadata: what its header says.

    Raises:
        BadCheckpoint: if its architecture isn't known.
    """
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise BadCheckpoint(f"{path}: general.architecture = {shown(name)} isn't supported, only {known} are")
    experts = metadata.get("llama.expert_count")
    return MIXTRAL if name == "llama" and isinstance(experts, int) and experts else ARCHITECTURES[name]


class _Keys:
    """The keys of one architecture, which of them were read, and the problems found in them."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.values, self.room = metadata, metadata["general.architecture"]
        harmless = {f"{self.room}.{key}" for key in HARMLESS}
        self.unread = {key for key in metadata if not key.startswith(HARMLESS_ROOMS) and key not in harmless}
        self.problems: list[str] = []

    def take(self, key: str, default: Any = None) -> Any:
        """Return a value; one that is given for each layer must be the same in all."""
        key = f"{self.room}.{key}"
        self.unread.discard(key)
        value = self.values.get(key, default)
        if not isinstance(value, list | np.ndarray):
            return value
        if len(value) == 0 or any(each != value[0] for each in value):
            self.problems.append(f"{key} differs from layer to layer, which isn't supported")
            return default
        return value[0] if isinstance(value, list) else value[0].item()

    def size(self, key: str, default: int | None = None) -> int:
        """Return a positive whole number, required without a default."""
        value = self.take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST:
            self.problems.append(f"{self.room}.{key} must be a positive whole number, not {shown(value)}")
            return 1
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a positive number, required without a default."""
        value = self.take(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            self.problems.append(f"{self.room}.{key} must be a positive number, not {shown(value)}")
            return 1.0
        return float(value)

    def expect(self, key: str, value: Any) -> None:
        """Note a problem unless a key has the only value that is supported, or is absent."""
        found = self.take(key, value)
        if found != value:
            self.problems.append(f"{self.room}.{key} = {shown(found)} isn't supported here, only {value!r} is")

    def all_problems(self) -> list[str]:
        return self.problems + [
            f"{shown(key)} = {shown(self.values[key])} isn't known here and may change what the model computes"
            for key in sorted(self.unread)
        ]


def read_settings(path: Path, header: Header) -> dict[str, Any]:
    """Return a file's metadata in the words of a `config.json`.

    Args:
        path: the file.
        header: what stands before its tensors.

    Raises:
        BadCheckpoint: naming every key that isn't known or supported at once.
    """
    architecture = architecture_of(path, header.metadata)
    keys = _Keys(header.metadata)
    config: dict[str, Any] = {"model_type": architecture.model_type}
    config |= {field: keys.size(key) for key, field in SIZES.items()}
    heads, width = config["num_attention_heads"], config["hidden_size"] // config["num_attention_heads"]
    config["num_key_value_heads"] = keys.size("attention.head_count_kv", heads)
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    config["vocab_size"] = keys.size("vocab_size", len(tokens) if isinstance(tokens, list | np.ndarray) else None)
    config["head_dim"] = width = keys.size("attention.key_length", max(width, 1))
    keys.expect("attention.value_length", width)
    keys.expect("attention.causal", True)
    keys.expect("rope.dimension_count", width)
    config["rms_norm_eps"] = keys.number("attention.layer_norm_rms_epsilon")
    config["rope_theta"] = keys.number("rope.freq_base", 10000.0)
    config["tie_word_embeddings"] = "output.weight" not in header.places
    config |= {field: value for key, field in architecture.fields.items() if (value := keys.take(key)) is not None}
    if architecture.experts is None:
        keys.expect("expert_count", 0)
        keys.expect("expert_used_count", 0)
    scaling = _scaling(keys)
    if FACTORS in header.places and scaling:
        keys.problems.append(f"rope.scaling.type = {shown(scaling['rope_type'])} and {FACTORS} both change the angles")
    elif FACTORS in header.places:
        scaling = _llama3(keys, path, header.places[FACTORS], width, config["rope_theta"])
    kind = header.metadata.get("general.type", "model")
    if not isinstance(kind, str) or kind != "model":
        keys.problems.append(f"general.type = {shown(kind)} isn't a model")
    raise_problems(path, keys.all_problems())
    return config | ({"rope_scaling": scaling} if scaling else {}) | architecture.rest(config, header)


def _scaling(keys: _Keys) -> dict[str, Any]:
    """Return how the rotations are slowed down."""
    kind = keys.take("rope.scaling.type", "none")
    if kind == "none":
        return {}
    if kind not in ("linear", "yarn"):
        keys.problems.append(f"{keys.room}.rope.scaling.type = {shown(kind)} isn't supported, only linear and yarn are")
        return {}
    scaling = {"rope_type": kind, "factor": keys.number("rope.scaling.factor")}
    if kind == "yarn":
        scaling["original_max_position_embeddings"] = keys.size("rope.scaling.original_context_length")
        scaling["beta_fast"] = keys.number("rope.scaling.yarn_beta_fast", 32.0)
        scaling["beta_slow"] = keys.number("rope.scaling.yarn_beta_slow", 1.0)
        keys.expect("rope.scaling.attn_factor", 1.0)
    return scaling


def _llama3(keys: _Keys, path: Path, place: Place, width: int, base: float) -> dict[str, Any]:
    """Return how the rotations are slowed down where the file gives a factor for each: as Llama 3 does, or refused."""
    if place.kind != gguf.GGMLQuantizationType.F32 or place.shape != [width // 2]:
        keys.problems.append(f"tensor {FACTORS} {place.shape} must have {width // 2} entries of F32")
        return {}
    given = np.fromfile(path, "<f4", width // 2, offset=place.start).astype(np.float64)
    low, high, original = 1.0, 4.0, 8192
    turns = original * base ** (-np.arange(0, width, 2) / width) / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    factor = float(given.max())
    if not np.allclose(given, 1 / ((1 - share) / factor + share), rtol=1e-5, atol=0):
        keys.problems.append(f"tensor {FACTORS} has factors that aren't those of Llama 3, which isn't supported")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }
