"""The families that are like Llama: rotary positions, gated MLPs, RMSNorm."""

from typing import Any

from .family import ABSENT, LABELS, TEXT, Family, Settings, causal

_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
_YARN = {"factor": 4.0, "beta_fast": 2, "beta_slow": 1, "original_max_position_embeddings": 32}
_LONG = {"short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [1.0, 2.0, 5.0, 9.0]}


def _scaling(kind: str, **settings: Any) -> Settings:
    """Return a scaling of the rotary positions, as it used to be written."""
    return {"rope_scaling": {"type": kind, **settings}}


def newer(kind: str, **settings: Any) -> Settings:
    """Return rotary positions as newer checkpoints write them.

    Args:
        kind: of scaling.
        **settings: its settings.
    """
    return {"rope_theta": ABSENT, "rope_parameters": {"rope_type": kind, "rope_theta": 100.0, **settings}}


ROTARY: dict[str, Settings] = {
    "head_dim": {"head_dim": ABSENT},
    "rope_theta": {"rope_theta": ABSENT},
    "rope_parameters": {**newer("default"), "rope_parameters": {"rope_type": "default", "rope_theta": 20.0}},
    "linear": _scaling("linear", factor=4.0),
    "linear, newer": newer("linear", factor=4.0),
    "dynamic": {"max_position_embeddings": 8, **_scaling("dynamic", factor=4.0)},
    "dynamic, newer": {"max_position_embeddings": 8, **newer("dynamic", factor=4.0)},
    "llama3": {"rope_scaling": {"rope_type": "llama3", **_LLAMA3}},
    "llama3, newer": newer("llama3", **_LLAMA3),
    "yarn": _scaling("yarn", **_YARN),
    "yarn, newer": newer("yarn", **_YARN),
    "yarn: attention_factor": _scaling("yarn", **_YARN, attention_factor=1.5),
    "yarn: mscale": _scaling("yarn", **_YARN, mscale=1.0, mscale_all_dim=0.5),
    "yarn: truncate": _scaling("yarn", **_YARN, truncate=False),
    "yarn: original context": _scaling("yarn", factor=4.0, beta_fast=2),
    "longrope, short text": _scaling("longrope", **_LONG, factor=4.0, original_max_position_embeddings=32),
    "longrope": {"original_max_position_embeddings": 8, **_scaling("longrope", **_LONG)},
    "longrope, newer": newer("longrope", **_LONG, attention_factor=1.25, original_max_position_embeddings=8),
}
"""What the models with rotary positions have in common, in the older and the newer spelling."""

BASE = {
    **TEXT,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    # Frequencies of 1, 0.3, 0.1, 0.03: texts of 12 tokens see what every kind of scaling does to each of them.
    "head_dim": 8,
    "rope_theta": 100.0,
    "max_position_embeddings": 64,
}
"""What the bases of Llama's relatives have in common."""
_COMMON: dict[str, Settings] = {
    "activation": {"hidden_act": "gelu"},
    "tied": {"tie_word_embeddings": True},
    "epsilon": {"rms_norm_eps": 0.1},
    "as many key as query heads": {"num_key_value_heads": 4},
    "one key head": {"num_key_value_heads": 1},
}
_WINDOWS = ["sliding_attention", "full_attention"]
_QWEN_WINDOWS: dict[str, Settings] = {
    "window": {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0},
    "max_window_layers": {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    "layer_types": {"use_sliding_window": True, "sliding_window": 3, "layer_types": _WINDOWS},
}
GRANITE = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
"""Granite's scales."""

_GEMMA = {**BASE, "query_pre_attn_scalar": 6, "sliding_window": 4}
_GEMMA_SWITCHES: dict[str, Settings] = {
    "activation": {"hidden_activation": "silu"},
    "head_dim": {"head_dim": 6},
    "query_pre_attn_scalar": {"query_pre_attn_scalar": 40},
    "window": {"sliding_window": 2},
    "layer_types": {"layer_types": ["full_attention", "sliding_attention"]},
    "final_logit_softcapping": {"final_logit_softcapping": 2.0},
    "attention_bias": {"attention_bias": True},
    "untied": {"tie_word_embeddings": False},
    "epsilon": {"rms_norm_eps": 0.1},
}

LLAMAS: dict[str, Family] = {
    "llama": Family(
        "LlamaDecoderLayer",
        causal("Llama"),
        {**BASE, **LABELS},
        {
            **_COMMON,
            **ROTARY,
            "attention_bias": {"attention_bias": True},
            "mlp_bias": {"mlp_bias": True},
        },
    ),
    "mistral": Family(
        "MistralDecoderLayer",
        causal("Mistral"),
        {**BASE, "sliding_window": None, **LABELS},
        {**_COMMON, **ROTARY, "window": {"sliding_window": 3}},
    ),
    "qwen2": Family("Qwen2DecoderLayer", causal("Qwen2"), {**BASE, **LABELS}, {**_COMMON, **ROTARY, **_QWEN_WINDOWS}),
    "qwen3": Family(
        "Qwen3DecoderLayer",
        causal("Qwen3"),
        {**BASE, **LABELS},
        {**_COMMON, **ROTARY, "head_dim": {"head_dim": 6}, **_QWEN_WINDOWS, "attention_bias": {"attention_bias": True}},
    ),
    "gemma2": Family(
        "Gemma2DecoderLayer",
        causal("Gemma2"),
        {**_GEMMA, **LABELS},
        {
            **_GEMMA_SWITCHES,
            "attn_logit_softcapping": {"attn_logit_softcapping": 0.5},
            "without caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
            "rope_theta": ROTARY["rope_theta"],
            "linear": ROTARY["linear"],
            "llama3, newer": ROTARY["llama3, newer"],
        },
    ),
    "mixtral": Family(
        "MixtralDecoderLayer",
        causal("Mixtral"),
        {**BASE, "num_local_experts": 4, "num_experts_per_tok": 2, **LABELS},
        {
            **_COMMON,
            **ROTARY,
            "window": {"sliding_window": 3},
            "one expert a token": {"num_experts_per_tok": 1},
            "every expert": {"num_experts_per_tok": 4},
            "experts": {"num_local_experts": 3},
        },
    ),
    "gemma3_text": Family(
        "Gemma3DecoderLayer",
        {"logits": "Gemma3ForCausalLM", "classes": "Gemma3TextForSequenceClassification", "hidden": "Gemma3TextModel"},
        {**_GEMMA, "layer_types": _WINDOWS, **LABELS},
        {
            **_GEMMA_SWITCHES,
            "sliding_window_pattern": {"layer_types": None, "sliding_window_pattern": 1},
            "rope_theta": ROTARY["rope_theta"],
            "rope_local_base_freq": {"rope_local_base_freq": 100.0},
            "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
            "rotary, newer": {
                "rope_theta": ABSENT,
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0},
                },
            },
            "bidirectional": {"use_bidirectional_attention": True},
        },
    ),
    "qwen3_moe": Family(
        "Qwen3MoeDecoderLayer",
        causal("Qwen3Moe"),
        {
            **BASE,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 12,
            **LABELS,
        },
        {
            **_COMMON,
            "head_dim": {"head_dim": ABSENT},
            "num_local_experts": {"num_experts": ABSENT, "num_local_experts": 3},
            **{name: ROTARY[name] for name in ("rope_theta", "rope_parameters", "llama3", "yarn, newer")},
            "attention_bias": {"attention_bias": True},
            "window": {"use_sliding_window": True, "sliding_window": 3},
            "norm_topk_prob": {"norm_topk_prob": True},
            "decoder_sparse_step": {"decoder_sparse_step": 2},
            "mlp_only_layers": {"mlp_only_layers": [1]},
            "without experts": {"mlp_only_layers": [0, 1]},
        },
    ),
    "phi3": Family(
        "Phi3DecoderLayer",
        causal("Phi3"),
        {
            **BASE,
            "head_dim": ABSENT,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "original_max_position_embeddings": 64,
            **LABELS,
        },
        {
            "activation": {"hidden_act": "gelu"},
            "tied": {"tie_word_embeddings": True},
            "epsilon": {"rms_norm_eps": 0.1},
            "as many key as query heads": {"num_key_value_heads": 2},
            "rope_theta": ROTARY["rope_theta"],
            "rope_parameters": ROTARY["rope_parameters"],
            "window": {"sliding_window": 3},
            "partial_rotary_factor": {"partial_rotary_factor": 0.5},
            "partial_rotary_factor, newer": newer("default", partial_rotary_factor=0.5),
            "partial_rotary_factor, odd": {"partial_rotary_factor": 0.4},
            "longrope, short text": _scaling("longrope", **_LONG),
            "longrope": {"original_max_position_embeddings": 8, **_scaling("longrope", **_LONG)},
            "longrope, newer": {"original_max_position_embeddings": 8, **newer("longrope", **_LONG)},
        },
    ),
    "olmo2": Family(
        "Olmo2DecoderLayer",
        causal("Olmo2"),
        {**BASE, **LABELS},
        {**_COMMON, **ROTARY, "attention_bias": {"attention_bias": True}},
    ),
    "starcoder2": Family(
        "Starcoder2DecoderLayer",
        causal("Starcoder2"),
        {**BASE, "sliding_window": 4, **LABELS},
        {
            "activation": {"hidden_act": "gelu"},
            "untied": {"tie_word_embeddings": False},
            "epsilon": {"norm_epsilon": 0.1},
            "one key head": {"num_key_value_heads": 1},
            "without window": {"sliding_window": None},
            "without biases": {"use_bias": False},
            **{name: ROTARY[name] for name in ("head_dim", "rope_theta", "rope_parameters", "linear", "yarn, newer")},
        },
    ),
    "smollm3": Family(
        "SmolLM3DecoderLayer",
        causal("SmolLM3"),
        {**BASE, "no_rope_layers": [1, 0], "pad_token_id": 0, **LABELS},
        {
            "activation": {"hidden_act": "gelu"},
            "untied": {"tie_word_embeddings": False},
            "epsilon": {"rms_norm_eps": 0.1},
            "one key head": {"num_key_value_heads": 1},
            "no_rope_layers": {"no_rope_layers": [0, 1, 1]},
            "no_rope_layer_interval": {"no_rope_layers": None, "no_rope_layer_interval": 1},
            "rotary positions in every layer": {"no_rope_layers": None},
            "window": {"use_sliding_window": True, "sliding_window": 3},
            "layer_types": {"use_sliding_window": True, "sliding_window": 3, "layer_types": _WINDOWS},
            "attention_bias": {"attention_bias": True},
            "mlp_bias": {"mlp_bias": True},
            **{name: ROTARY[name] for name in ("head_dim", "rope_theta", "dynamic", "llama3, newer", "yarn")},
        },
    ),
    "olmo3": Family(
        "Olmo3DecoderLayer",
        causal("Olmo3"),
        {**BASE, "rope_theta": ABSENT, "sliding_window": 4, "layer_types": _WINDOWS, **LABELS},
        {
            "activation": {"hidden_act": "gelu"},
            "tied": {"tie_word_embeddings": True},
            "epsilon": {"rms_norm_eps": 0.1},
            "one key head": {"num_key_value_heads": 1},
            "window": {"sliding_window": 2},
            "default layer_types": {"layer_types": None},
            "attention_bias": {"attention_bias": True},
            "rope_theta": {"rope_theta": 100.0},
            "yarn": {"rope_scaling": {"rope_type": "yarn", **_YARN}},
            "rotary, newer": {
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0},
                },
            },
        },
    ),
    "gemma": Family(
        "GemmaDecoderLayer",
        causal("Gemma"),
        {**BASE, "pad_token_id": 0, **LABELS},
        {
            "activation": {"hidden_act": "silu"},
            "untied": {"tie_word_embeddings": False},
            "epsilon": {"rms_norm_eps": 0.1},
            "head_dim": {"head_dim": 6},
            "one key head": {"num_key_value_heads": 1},
            "attention_bias": {"attention_bias": True},
            **{name: ROTARY[name] for name in ("rope_theta", "rope_parameters", "linear", "llama3, newer")},
        },
    ),
    "phi": Family(
        "PhiDecoderLayer",
        causal("Phi"),
        {**BASE, **LABELS},
        {
            "activation": {"hidden_act": "relu"},
            "tied": {"tie_word_embeddings": True},
            "epsilon": {"layer_norm_eps": 0.1},
            "as many key as query heads": {"num_key_value_heads": 4},
            "partial_rotary_factor": {"partial_rotary_factor": 1.0},
            "partial_rotary_factor, newer": newer("default", partial_rotary_factor=0.75),
            "qk_layernorm": {"qk_layernorm": True, "head_dim": ABSENT},
            **{name: ROTARY[name] for name in ("rope_theta", "linear", "dynamic", "yarn")},
        },
    ),
    "stablelm": Family(
        "StableLmDecoderLayer",
        causal("StableLm"),
        {**BASE, "head_dim": ABSENT, "num_attention_heads": 2, "num_key_value_heads": 1, **LABELS},
        {
            "activation": {"hidden_act": "gelu"},
            "tied": {"tie_word_embeddings": True},
            "epsilon": {"layer_norm_eps": 0.1},
            "as many key as query heads": {"num_key_value_heads": 2},
            "parallel": {"use_parallel_residual": True},
            "use_qkv_bias": {"use_qkv_bias": True},
            "partial_rotary_factor": {"partial_rotary_factor": 0.5},
            "partial_rotary_factor, newer": newer("default", partial_rotary_factor=0.75),
            "partial_rotary_factor: rope_theta": {"partial_rotary_factor": 0.5, "rope_theta": ABSENT},
            "qk_layernorm": {"qk_layernorm": True},
            "linear": ROTARY["linear"],
        },
    ),
    "granite": Family(
        "GraniteDecoderLayer",
        {"logits": "GraniteForCausalLM", "hidden": "GraniteModel"},
        {
            **BASE,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.5,
            "logits_scaling": 4.0,
        },
        {
            "activation": {"hidden_act": "gelu"},
            "tied": {"tie_word_embeddings": True},
            "epsilon": {"rms_norm_eps": 0.1},
            "one key head": {"num_key_value_heads": 1},
            "attention_bias": {"attention_bias": True},
            "mlp_bias": {"mlp_bias": True},
            **{field: {field: ABSENT} for field in GRANITE},
            **{name: ROTARY[name] for name in ("head_dim", "rope_theta", "rope_parameters", "dynamic", "yarn, newer")},
        },
    ),
    "cohere": Family(
        "CohereDecoderLayer",
        {"logits": "CohereForCausalLM", "hidden": "CohereModel"},
        {**BASE, "pad_token_id": 0},
        {
            "activation": {"hidden_act": "gelu"},
            "untied": {"tie_word_embeddings": False},
            "epsilon": {"layer_norm_eps": 0.1},
            "one key head": {"num_key_value_heads": 1},
            "attention_bias": {"attention_bias": True},
            "logit_scale": {"logit_scale": 2.0},
            "use_qk_norm": {"use_qk_norm": True},
            **{name: ROTARY[name] for name in ("head_dim", "rope_theta", "rope_parameters", "dynamic", "yarn, newer")},
        },
    ),
    "gpt_oss": Family(
        "GptOssDecoderLayer",
        causal("GptOss"),
        {
            **BASE,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 3,
            **_scaling("yarn", **_YARN, truncate=False),
            **LABELS,
        },
        {
            "tied": {"tie_word_embeddings": True},
            "epsilon": {"rms_norm_eps": 0.1},
            "one key head": {"num_key_value_heads": 1},
            "without attention bias": {"attention_bias": False},
            "window": {"sliding_window": 6},
            "layer_types": {"layer_types": ["full_attention", "sliding_attention"]},
            "one expert a token": {"num_experts_per_tok": 1},
            "experts": {"num_local_experts": 3},
            "swiglu_limit": {"swiglu_limit": 0.5},
            "swiglu_alpha": {"swiglu_alpha": 1.0},
            "rope_theta": {"rope_theta": ABSENT},
            "without rope_scaling": {"rope_scaling": ABSENT},
            "rope_parameters": {"rope_scaling": ABSENT, **ROTARY["rope_parameters"]},
            "llama3": ROTARY["llama3"],
        },
    ),
}
