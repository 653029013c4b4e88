"""Decoders of further makers: Llama's relatives, experts, GPT-2's relatives, and a model that reads images too."""

from .family import ABSENT, LABELS, TEXT, Family, Settings, causal
from .llamas import BASE, GRANITE, ROTARY, newer

_WINDOWS = ["sliding_attention", "full_attention"]
_ACTIVATION: Settings = {"activation": {"hidden_act": "gelu"}}
_TIED: Settings = {"tied": {"tie_word_embeddings": True}}
_EPSILON: Settings = {"epsilon": {"rms_norm_eps": 0.1}}
_ONE_KEY: Settings = {"one key head": {"num_key_value_heads": 1}}
_USUAL: Settings = {**_ACTIVATION, **_TIED, **_EPSILON, **_ONE_KEY}
_BIASES: Settings = {"attention_bias": {"attention_bias": True}}
_EXPERTS: Settings = {
    "one expert a token": {"num_experts_per_tok": 1},
    "every expert": {"num_experts_per_tok": 4},
}
_NO_CLASSES = ("logits", "hidden")


def _some(*names: str) -> dict[str, Settings]:
    """Return some of the switches of rotary positions."""
    return {name: ROTARY[name] for name in names}


def _without_classes(prefix: str) -> dict[str, str]:
    """Return the heads of a decoder that has no classifier."""
    return {head: name for head, name in causal(prefix).items() if head in _NO_CLASSES}


_GLM = {**BASE, "attention_bias": False, "pad_token_id": 0, **LABELS}
_GLM_SWITCHES: dict[str, Settings] = {
    **_USUAL,
    "head_dim": {"head_dim": 4},
    "attention bias": {"attention_bias": ABSENT},
    "partial_rotary_factor": {"partial_rotary_factor": 1.0},
    "partial_rotary_factor, newer": newer("default", partial_rotary_factor=0.75),
    **_some("rope_theta", "linear", "yarn"),
}
TEXT_CONFIG = {
    **{name: value for name, value in BASE.items() if value is not None},
    "model_type": "gemma3_text",
    "pad_token_id": 0,
    "query_pre_attn_scalar": 6,
    "sliding_window": 4,
    "layer_types": _WINDOWS,
}
"""The language model of a model that reads images too."""
_GPT = {**TEXT, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 4, **LABELS}
_GPT_NEO = {
    **TEXT,
    "max_position_embeddings": 16,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 4,
    "attention_types": [[["global", "local"], 1]],
    "window_size": 4,
    **LABELS,
}

MAKERS: dict[str, Family] = {
    "ministral": Family(
        "MinistralDecoderLayer",
        causal("Ministral"),
        {**BASE, "sliding_window": 4, "layer_types": _WINDOWS, **LABELS},
        {
            **_USUAL,
            "window": {"sliding_window": 2},
            "default layer_types": {"layer_types": None},
            **_some("rope_theta", "rope_parameters", "dynamic", "llama3", "yarn, newer"),
        },
    ),
    "seed_oss": Family(
        "SeedOssDecoderLayer",
        causal("SeedOss"),
        {**BASE, "pad_token_id": 0, **LABELS},
        {
            **_USUAL,
            "head_dim": {"head_dim": 6},
            "without attention bias": {"attention_bias": False},
            "attention_out_bias": {"attention_out_bias": True},
            "mlp_bias": {"mlp_bias": True},
            **_some("rope_theta", "rope_parameters", "linear", "yarn, newer"),
        },
    ),
    "helium": Family(
        "HeliumDecoderLayer",
        causal("Helium"),
        {**BASE, "hidden_size": 32, "pad_token_id": 0, **LABELS},
        {
            **_USUAL,
            **_BIASES,
            "mlp_bias": {"mlp_bias": True},
            **_some("rope_theta", "rope_parameters", "linear", "yarn"),
        },
    ),
    "ernie4_5": Family(
        "Ernie4_5DecoderLayer",
        _without_classes("Ernie4_5"),
        {**BASE, "pad_token_id": 0},
        {
            **_ACTIVATION,
            "untied": {"tie_word_embeddings": False},
            **_EPSILON,
            **_ONE_KEY,
            "head_dim": {"head_dim": 6},
            "use_bias": {"use_bias": True},
            **_some("rope_theta", "rope_parameters", "linear", "yarn"),
        },
    ),
    "exaone4": Family(
        "Exaone4DecoderLayer",
        causal("Exaone4"),
        {**BASE, "sliding_window": 4, "layer_types": _WINDOWS, **LABELS},
        {
            **_USUAL,
            "head_dim": {"head_dim": ABSENT},
            "window": {"sliding_window": 2},
            "sliding_window_pattern": {"layer_types": None, "sliding_window_pattern": 1},
            "default layer_types": {"layer_types": None},
            "without windows": {"layer_types": ["full_attention"] * 2, "sliding_window": None},
            **_some("rope_theta", "rope_parameters", "llama3", "yarn"),
        },
    ),
    "glm": Family("GlmDecoderLayer", causal("Glm"), _GLM, _GLM_SWITCHES),
    "glm4": Family("Glm4DecoderLayer", causal("Glm4"), _GLM, _GLM_SWITCHES),
    "cohere2": Family(
        "Cohere2DecoderLayer",
        _without_classes("Cohere2"),
        {**BASE, "head_dim": ABSENT, "pad_token_id": 0, "sliding_window": 4, "layer_types": _WINDOWS},
        {
            **_ACTIVATION,
            "untied": {"tie_word_embeddings": False},
            "epsilon": {"layer_norm_eps": 0.1},
            **_ONE_KEY,
            **_BIASES,
            "logit_scale": {"logit_scale": 2.0},
            "window": {"sliding_window": 2},
            "sliding_window_pattern": {"layer_types": None, "sliding_window_pattern": 1},
            "default layer_types": {"layer_types": None},
            **_some("rope_theta", "rope_parameters", "linear", "yarn, newer"),
        },
    ),
    "olmoe": Family(
        "OlmoeDecoderLayer",
        _without_classes("Olmoe"),
        {**BASE, "head_dim": ABSENT, "num_experts": 4, "num_experts_per_tok": 2},
        {
            **_USUAL,
            **_EXPERTS,
            **_BIASES,
            "experts": {"num_experts": 3},
            "norm_topk_prob": {"norm_topk_prob": True},
            "clip_qkv": {"clip_qkv": 0.5},
            **_some("rope_theta", "rope_parameters", "linear", "llama3"),
        },
    ),
    "granitemoe": Family(
        "GraniteMoeDecoderLayer",
        _without_classes("GraniteMoe"),
        {
            **BASE,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.5,
            "logits_scaling": 4.0,
        },
        {
            **_USUAL,
            **_EXPERTS,
            **_BIASES,
            "experts": {"num_local_experts": 3},
            **{field: {field: ABSENT} for field in GRANITE},
            **_some("head_dim", "rope_theta", "rope_parameters", "dynamic"),
        },
    ),
    "gemma3": Family(
        "Gemma3DecoderLayer",
        {
            "logits": "Gemma3ForConditionalGeneration",
            "classes": "Gemma3ForSequenceClassification",
            "hidden": "Gemma3Model",
        },
        {
            "text_config": TEXT_CONFIG,
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": 8,
                "intermediate_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "image_size": 8,
                "patch_size": 4,
            },
            "mm_tokens_per_image": 4,
            **LABELS,
        },
        {
            "activation": {"text_config": {**TEXT_CONFIG, "hidden_activation": "silu"}},
            "epsilon": {"text_config": {**TEXT_CONFIG, "rms_norm_eps": 0.1}},
            "window": {"text_config": {**TEXT_CONFIG, "sliding_window": 2}},
            "linear": {"text_config": {**TEXT_CONFIG, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}},
            "untied": {"tie_word_embeddings": False},
        },
    ),
    "gpt_bigcode": Family(
        "GPTBigCodeBlock",
        causal("GPTBigCode"),
        _GPT,
        {
            "activation": {"activation_function": "relu"},
            "n_inner": {"n_inner": 20},
            "untied": {"tie_word_embeddings": False},
            "epsilon": {"layer_norm_epsilon": 0.1},
            "scale_attn_weights": {"scale_attn_weights": False},
            "as many key as query heads": {"multi_query": False},
        },
    ),
    "gpt_neo": Family(
        "GPTNeoBlock",
        causal("GPTNeo"),
        _GPT_NEO,
        {
            "activation": {"activation_function": "relu"},
            "intermediate_size": {"intermediate_size": 20},
            "untied": {"tie_word_embeddings": False},
            "epsilon": {"layer_norm_epsilon": 0.1},
            "attention_types": {"attention_types": [[["local"], 2]]},
            "window_size": {"window_size": 2},
        },
    ),
}
