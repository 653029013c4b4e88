"""The supported architectures of GGUF files: their tensors, keys and `config.json` fields."""

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import gguf

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.gguf_header import Header
from duat_jax.models.checkpoint.gguf_unread import unread_architecture, unread_bert
from duat_jax.models.registry import FAMILIES

_CAPS_AND_WINDOW = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention.sliding_window": "sliding_window",
}

_GEMMA3 = {
    "attention.sliding_window": "sliding_window",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base_swa": "rope_local_base_freq",
}

_GRANITE = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}

_MIXTRAL_EXPERTS = {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"}

_EXPERTS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}

_IN_EVERY_LAYER = {"hidden_act": "silu", "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
"""Qwen's files have experts in every layer, and the weights of the chosen ones sum to one."""


class Layout(Enum):
    """The layout of an architecture's tensors."""

    SAME = "as Hugging Face stores them"
    ALTERNATING = "rows of queries and keys alternate between the two halves of rotated features"
    SHIFTED = "norms' weights have the one added that the model adds to them"
    TRANSPOSED = "the layers' matrices are transposed"
    APART = "queries, keys and values follow each other instead of taking turns head by head"


class Architecture(NamedTuple):
    """The tensor names, keys and layout of an architecture's files.

    Args:
        kind: its name in the `gguf` library.
        model_type: its name in a `config.json`.
        fields: keys besides those of all architectures, and their names in a `config.json`.
        other_fields: the other fields, which depend on the architecture or its tensors.
        epsilon: the key of the norms' epsilon, and its field.
        turned: the field of the share of a head's features that are rotated; absent where all are.
        layout: the difference of the tensors' layout from Hugging Face's.
        causal: whether a token sees only itself and earlier tokens.
        further: names of tensors that the family has under other names.
    """

    kind: gguf.MODEL_ARCH
    model_type: str
    fields: dict[str, str]
    other_fields: Mapping[str, Any] | Callable[[dict[str, Any], Header], dict[str, Any]]
    epsilon: tuple[str, str] = ("attention.layer_norm_rms_epsilon", "rms_norm_eps")
    turned: str | None = None
    layout: Layout = Layout.SAME
    causal: bool = True
    further: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The first layer's and all other tensors in Hugging Face's names, without `.weight` or `.bias`."""
        family = FAMILIES[self.model_type]
        # The library knows an encoder's names without their prefix.
        parts = family.parts if self.causal else (name.removeprefix(family.prefix) for name in family.parts)
        return (*parts, *self.further)

    @property
    def experts(self) -> str | None:
        """The field of a `config.json` with the number of experts."""
        return self.fields.get("expert_count")


def _llama(config: dict[str, Any], header: Header) -> dict[str, Any]:
    return {
        "hidden_act": "silu",
        "attention_bias": "blk.0.attn_q.bias" in header.places,
        "mlp_bias": "blk.0.ffn_up.bias" in header.places,
    }


def _gemma2(config: dict[str, Any], header: Header) -> dict[str, Any]:
    # The scale of the scores isn't in the file: the largest of three published sizes, of 46 layers, has its own.
    largest = config["num_hidden_layers"] == 46
    scale = config["hidden_size"] // config["num_attention_heads"] if largest else config["head_dim"]
    return {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": scale}


def _gemma3(config: dict[str, Any], header: Header) -> dict[str, Any]:
    # Scale and window pattern aren't in these files either; 62 layers identify the largest published size.
    largest = config["num_hidden_layers"] == 62
    scale = config["hidden_size"] // config["num_attention_heads"] if largest else config["head_dim"]
    return {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": scale, "sliding_window_pattern": 6}


def _smollm3(config: dict[str, Any], header: Header) -> dict[str, Any]:
    return _llama(config, header) | {"no_rope_layer_interval": 4}


def _olmo(config: dict[str, Any], header: Header) -> dict[str, Any]:
    return {"hidden_act": "silu", "attention_bias": "blk.0.attn_q.bias" in header.places}


def _starcoder2(config: dict[str, Any], header: Header) -> dict[str, Any]:
    # These files don't state the window, which texts of more than 4,096 tokens have.
    biased = "blk.0.attn_q.bias" in header.places
    return {"hidden_act": "gelu_pytorch_tanh", "use_bias": biased, "sliding_window": None}


def _stablelm(config: dict[str, Any], header: Header) -> dict[str, Any]:
    return {"hidden_act": "silu", "use_qkv_bias": "blk.0.attn_q.bias" in header.places, "head_dim": None}


def _gpt2(config: dict[str, Any], header: Header) -> dict[str, Any]:
    unknown = dict.fromkeys(("head_dim", "num_key_value_heads", "rope_theta", "intermediate_size"))
    return {**unknown, "activation_function": "gelu_new", "n_inner": config["intermediate_size"]}


def _gpt_neox(config: dict[str, Any], header: Header) -> dict[str, Any]:
    unknown = dict.fromkeys(("head_dim", "num_key_value_heads", "rope_theta"))
    biased = "blk.0.attn_qkv.bias" in header.places
    return {**unknown, "rotary_emb_base": config["rope_theta"], "hidden_act": "gelu", "attention_bias": biased}


def _bert(config: dict[str, Any], header: Header) -> dict[str, Any]:
    unknown = dict.fromkeys(("head_dim", "num_key_value_heads", "rope_theta", "tie_word_embeddings"))
    segments = header.places["token_types.weight"].shape[0] if "token_types.weight" in header.places else 0
    return {**unknown, "hidden_act": "gelu", "type_vocab_size": segments}


def _phi3(config: dict[str, Any], header: Header) -> dict[str, Any]:
    return {"hidden_act": "silu", "sliding_window": config.get("sliding_window") or None}


def _gpt_oss(config: dict[str, Any], header: Header) -> dict[str, Any]:
    fields = {"hidden_act": "silu", "attention_bias": "blk.0.attn_q.bias" in header.places}
    # The files don't state that the ends of YaRN's ramp aren't rounded, as in the published model.
    scaling = config.get("rope_scaling")
    return fields | ({"rope_scaling": scaling | {"truncate": False}} if scaling else {"rope_parameters": _UNSCALED})


def _seed_oss(config: dict[str, Any], header: Header) -> dict[str, Any]:
    return _llama(config, header) | {"attention_out_bias": "blk.0.attn_output.bias" in header.places}


def _ernie(config: dict[str, Any], header: Header) -> dict[str, Any]:
    return {"hidden_act": "silu", "use_bias": "blk.0.attn_q.bias" in header.places}


def _exaone4(config: dict[str, Any], header: Header) -> dict[str, Any]:
    return {"hidden_act": "silu", "sliding_window": config.get("sliding_window")}


_UNSCALED = {"rope_type": "default"}
"""The parameters of unscaled rotations, since a GPT-OSS's default is scaled ones."""

_LAYER_NORM = "attention.layer_norm_epsilon"

ARCHITECTURES = {
    "gpt2": Architecture(
        gguf.MODEL_ARCH.GPT2,
        "gpt2",
        {},
        _gpt2,
        epsilon=(_LAYER_NORM, "layer_norm_epsilon"),
        layout=Layout.TRANSPOSED,
    ),
    "bert": Architecture(
        gguf.MODEL_ARCH.BERT,
        "bert",
        {},
        _bert,
        epsilon=(_LAYER_NORM, "layer_norm_eps"),
        causal=False,
    ),
    "phi3": Architecture(
        gguf.MODEL_ARCH.PHI3,
        "phi3",
        {
            "attention.sliding_window": "sliding_window",
            "rope.scaling.original_context_length": "original_max_position_embeddings",
        },
        _phi3,
        turned="partial_rotary_factor",
    ),
    "seed_oss": Architecture(
        getattr(gguf.MODEL_ARCH, "SEED_OSS", gguf.MODEL_ARCH.LLAMA),  # an older library's names don't fit: refused
        "seed_oss",
        {},
        _seed_oss,
    ),
    "ernie4_5": Architecture(
        gguf.MODEL_ARCH.LLAMA,  # whose tensors have the same names
        "ernie4_5",
        {},
        _ernie,
    ),
    "exaone4": Architecture(
        gguf.MODEL_ARCH.OLMO2,  # whose tensors have the same names
        "exaone4",
        {"attention.sliding_window": "sliding_window"},
        _exaone4,
    ),
    "glm4": Architecture(gguf.MODEL_ARCH.GLM4, "glm4", {}, _olmo, turned="partial_rotary_factor"),
    "olmoe": Architecture(
        gguf.MODEL_ARCH.OLMOE,
        "olmoe",
        {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"},
        {"hidden_act": "silu", "norm_topk_prob": False},
    ),
    "cohere2": Architecture(
        gguf.MODEL_ARCH.COHERE2,
        "cohere2",
        {"logit_scale": "logit_scale", "attention.sliding_window": "sliding_window"},
        {"hidden_act": "silu"},
        epsilon=(_LAYER_NORM, "layer_norm_eps"),
    ),
    "gpt-oss": Architecture(
        getattr(gguf.MODEL_ARCH, "GPT_OSS", gguf.MODEL_ARCH.LLAMA),  # an older library's names don't fit: refused
        "gpt_oss",
        {
            "expert_count": "num_local_experts",
            "expert_used_count": "num_experts_per_tok",
            "expert_feed_forward_length": "intermediate_size",
            "attention.sliding_window": "sliding_window",
        },
        _gpt_oss,
        further=(
            "model.layers.0.self_attn.sinks",
            *(f"model.layers.0.mlp.experts.{part}_proj" for part in ("gate", "up", "down")),
        ),
    ),
    "gptneox": Architecture(
        gguf.MODEL_ARCH.GPTNEOX,
        "gpt_neox",
        {"use_parallel_residual": "use_parallel_residual"},
        _gpt_neox,
        epsilon=(_LAYER_NORM, "layer_norm_eps"),
        turned="rotary_pct",
        layout=Layout.APART,
    ),
    "starcoder2": Architecture(
        gguf.MODEL_ARCH.STARCODER2,
        "starcoder2",
        {},
        _starcoder2,
        epsilon=(_LAYER_NORM, "norm_epsilon"),
    ),
    "smollm3": Architecture(
        gguf.MODEL_ARCH.LLAMA,  # whose tensors have the same names; older libraries know no other
        "smollm3",
        {},
        _smollm3,
        layout=Layout.ALTERNATING,
    ),
    "olmo2": Architecture(gguf.MODEL_ARCH.OLMO2, "olmo2", {}, _olmo),
    "gemma": Architecture(
        gguf.MODEL_ARCH.GEMMA, "gemma", {}, {"hidden_act": "gelu_pytorch_tanh"}, layout=Layout.SHIFTED
    ),
    "gemma3": Architecture(
        gguf.MODEL_ARCH.GEMMA3,
        "gemma3_text",
        _GEMMA3,
        _gemma3,
        layout=Layout.SHIFTED,
    ),
    "phi2": Architecture(
        gguf.MODEL_ARCH.PHI2,
        "phi",
        {},
        {"hidden_act": "gelu_new"},
        epsilon=(_LAYER_NORM, "layer_norm_eps"),
        turned="partial_rotary_factor",
    ),
    "stablelm": Architecture(
        gguf.MODEL_ARCH.STABLELM,
        "stablelm",
        {"use_parallel_residual": "use_parallel_residual"},
        _stablelm,
        epsilon=(_LAYER_NORM, "layer_norm_eps"),
        turned="partial_rotary_factor",
    ),
    "granite": Architecture(gguf.MODEL_ARCH.GRANITE, "granite", _GRANITE, _llama, layout=Layout.ALTERNATING),
    "command-r": Architecture(
        gguf.MODEL_ARCH.COMMAND_R,
        "cohere",
        {"logit_scale": "logit_scale"},
        {"hidden_act": "silu"},
        epsilon=(_LAYER_NORM, "layer_norm_eps"),
    ),
    "llama": Architecture(gguf.MODEL_ARCH.LLAMA, "llama", {}, _llama, layout=Layout.ALTERNATING),
    "qwen2": Architecture(gguf.MODEL_ARCH.QWEN2, "qwen2", {}, {"hidden_act": "silu"}),
    "qwen3": Architecture(gguf.MODEL_ARCH.QWEN3, "qwen3", {}, {"hidden_act": "silu"}),
    "qwen3moe": Architecture(gguf.MODEL_ARCH.QWEN3MOE, "qwen3_moe", _EXPERTS, _IN_EVERY_LAYER),
    "gemma2": Architecture(
        gguf.MODEL_ARCH.GEMMA2,
        "gemma2",
        _CAPS_AND_WINDOW,
        _gemma2,
        layout=Layout.SHIFTED,
    ),
}
"""The supported architectures, by `general.architecture`."""

OLMO3 = Architecture(gguf.MODEL_ARCH.OLMO2, "olmo3", {"attention.sliding_window": "sliding_window"}, _olmo)
"""The architecture of an OLMo 2 with windows."""

MIXTRAL = Architecture(
    gguf.MODEL_ARCH.LLAMA, "mixtral", _MIXTRAL_EXPERTS, {"hidden_act": "silu"}, layout=Layout.ALTERNATING
)
"""The architecture of a llama with experts."""


def architecture_of(path: Path, metadata: Mapping[str, Any]) -> Architecture:
    """Return the architecture of a file."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise BadCheckpoint(unread_architecture(path, name, ARCHITECTURES))
    if name == "bert" and (kind := metadata.get("tokenizer.ggml.model", "bert")) != "bert":
        raise BadCheckpoint(unread_bert(path, kind))
    if name == "olmo2" and "olmo2.attention.sliding_window" in metadata:
        return OLMO3
    experts = metadata.get("llama.expert_count")
    return MIXTRAL if name == "llama" and isinstance(experts, int) and experts else ARCHITECTURES[name]
