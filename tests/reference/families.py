"""The families, and for each every switch of its `config.json` that changes what it computes."""

from typing import Any, NamedTuple

Settings = dict[str, Any]

ABSENT = object()
"""A field that is left out."""

TEXT = {"vocab_size": 61, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
LABELS = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}


class Family(NamedTuple):
    """One family of checkpoints.

    Args:
        layer: the reference's class of a layer.
        heads: the reference's class by what our model reads out.
        base: `config.json` of its base case.
        switches: fields that are changed, by the name of what they change.
        classes: the same for what only a classifier reads.
    """

    layer: str
    heads: dict[str, str]
    base: Settings
    switches: dict[str, Settings]
    classes: dict[str, Settings] = {}  # noqa: RUF012


def _causal(prefix: str) -> dict[str, str]:
    return {
        "logits": f"{prefix}ForCausalLM",
        "classes": f"{prefix}ForSequenceClassification",
        "hidden": f"{prefix}Model",
    }


def _encoder(prefix: str) -> dict[str, str]:
    return {
        "masked": f"{prefix}ForMaskedLM",
        "classes": f"{prefix}ForSequenceClassification",
        "hidden": f"{prefix}Model",
    }


_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
_YARN = {"factor": 4.0, "beta_fast": 2, "beta_slow": 1, "original_max_position_embeddings": 32}
_LONG = {"short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [1.0, 2.0, 5.0, 9.0]}


def _scaling(kind: str, **settings: Any) -> Settings:
    """Return a scaling of the rotary positions, as it used to be written."""
    return {"rope_scaling": {"type": kind, **settings}}


def _newer(kind: str, **settings: Any) -> Settings:
    """Return rotary positions as newer checkpoints write them."""
    return {"rope_theta": ABSENT, "rope_parameters": {"rope_type": kind, "rope_theta": 100.0, **settings}}


ROTARY: dict[str, Settings] = {
    "head_dim": {"head_dim": ABSENT},
    "rope_theta": {"rope_theta": ABSENT},
    "rope_parameters": {**_newer("default"), "rope_parameters": {"rope_type": "default", "rope_theta": 20.0}},
    "linear": _scaling("linear", factor=4.0),
    "linear, newer": _newer("linear", factor=4.0),
    "dynamic": {"max_position_embeddings": 8, **_scaling("dynamic", factor=4.0)},
    "dynamic, newer": {"max_position_embeddings": 8, **_newer("dynamic", factor=4.0)},
    "llama3": {"rope_scaling": {"rope_type": "llama3", **_LLAMA3}},
    "llama3, newer": _newer("llama3", **_LLAMA3),
    "yarn": _scaling("yarn", **_YARN),
    "yarn, newer": _newer("yarn", **_YARN),
    "yarn: attention_factor": _scaling("yarn", **_YARN, attention_factor=1.5),
    "yarn: mscale": _scaling("yarn", **_YARN, mscale=1.0, mscale_all_dim=0.5),
    "yarn: truncate": _scaling("yarn", **_YARN, truncate=False),
    "yarn: original context": _scaling("yarn", factor=4.0, beta_fast=2),
    "longrope, short text": _scaling("longrope", **_LONG, factor=4.0, original_max_position_embeddings=32),
    "longrope": {"original_max_position_embeddings": 8, **_scaling("longrope", **_LONG)},
    "longrope, newer": _newer("longrope", **_LONG, attention_factor=1.25, original_max_position_embeddings=8),
}
"""What the models with rotary positions have in common, in the older and the newer spelling."""

_LLAMA = {
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
_GEMMA = {**_LLAMA, "query_pre_attn_scalar": 6, "sliding_window": 4}
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
_BERT = {
    **TEXT,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
    **LABELS,
}
_BERT_SWITCHES: dict[str, Settings] = {
    "activation": {"hidden_act": "silu"},
    "gelu_new": {"hidden_act": "gelu_new"},
    "epsilon": {"layer_norm_eps": 0.1},
    "heads": {"num_attention_heads": 2},
    "untied": {"tie_word_embeddings": False},
}

FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        "GPT2Block",
        {"logits": "GPT2LMHeadModel", "classes": "GPT2ForSequenceClassification", "hidden": "GPT2Model"},
        {**TEXT, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 4, **LABELS},
        {
            "activation": {"activation_function": "relu"},
            "gelu": {"activation_function": "gelu"},
            "n_inner": {"n_inner": 20},
            "untied": {"tie_word_embeddings": False},
            "epsilon": {"layer_norm_epsilon": 0.1},
            "scale_attn_weights": {"scale_attn_weights": False},
            "scale_attn_by_inverse_layer_idx": {"scale_attn_by_inverse_layer_idx": True},
        },
    ),
    "bert": Family("BertLayer", _encoder("Bert"), _BERT, _BERT_SWITCHES),
    "roberta": Family(
        "RobertaLayer",
        _encoder("Roberta"),
        {**_BERT, "pad_token_id": 1, "type_vocab_size": 1},
        {**_BERT_SWITCHES, "pad_token_id": {"pad_token_id": 3}},
    ),
    "distilbert": Family(
        "TransformerBlock",
        _encoder("DistilBert"),
        {
            **TEXT,
            "dim": 16,
            "hidden_dim": 24,
            "n_layers": 2,
            "n_heads": 4,
            "max_position_embeddings": 16,
            "pad_token_id": 0,
            **LABELS,
        },
        {
            "activation": {"activation": "relu"},
            "heads": {"n_heads": 2},
            "untied": {"tie_word_embeddings": False},
        },
    ),
    "gpt_neox": Family(
        "GPTNeoXLayer",
        _causal("GPTNeoX"),
        {
            **TEXT,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "rotary_pct": 0.75,
            "rotary_emb_base": 100,
            "max_position_embeddings": 64,
            **LABELS,
        },
        {
            "activation": {"hidden_act": "relu"},
            "sequential": {"use_parallel_residual": False},
            "without attention bias": {"attention_bias": False},
            "tied": {"tie_word_embeddings": True},
            "epsilon": {"layer_norm_eps": 0.1},
            "rotary_pct": {"rotary_pct": 0.5},
            "rotary_pct: whole": {"rotary_pct": 1.0},
            "rotary_pct: default": {"rotary_pct": ABSENT},
            "rotary_emb_base": {"rotary_emb_base": ABSENT},
            "rope_parameters": {
                "rotary_pct": ABSENT,
                "rotary_emb_base": ABSENT,
                **_newer("default", partial_rotary_factor=0.5),
            },
            **{name: ROTARY[name] for name in ("linear", "dynamic", "llama3", "yarn")},
        },
    ),
    "llama": Family(
        "LlamaDecoderLayer",
        _causal("Llama"),
        {**_LLAMA, **LABELS},
        {
            **_COMMON,
            **ROTARY,
            "attention_bias": {"attention_bias": True},
            "mlp_bias": {"mlp_bias": True},
        },
    ),
    "mistral": Family(
        "MistralDecoderLayer",
        _causal("Mistral"),
        {**_LLAMA, "sliding_window": None, **LABELS},
        {**_COMMON, **ROTARY, "window": {"sliding_window": 3}},
    ),
    "qwen2": Family(
        "Qwen2DecoderLayer", _causal("Qwen2"), {**_LLAMA, **LABELS}, {**_COMMON, **ROTARY, **_QWEN_WINDOWS}
    ),
    "qwen3": Family(
        "Qwen3DecoderLayer",
        _causal("Qwen3"),
        {**_LLAMA, **LABELS},
        {**_COMMON, **ROTARY, "head_dim": {"head_dim": 6}, **_QWEN_WINDOWS, "attention_bias": {"attention_bias": True}},
    ),
    "gemma2": Family(
        "Gemma2DecoderLayer",
        _causal("Gemma2"),
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
        _causal("Mixtral"),
        {**_LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2, **LABELS},
        {
            **_COMMON,
            **ROTARY,
            "window": {"sliding_window": 3},
            "one expert a token": {"num_experts_per_tok": 1},
            "every expert": {"num_experts_per_tok": 4},
            "experts": {"num_local_experts": 3},
        },
    ),
    "vit": Family(
        "ViTLayer",
        {"hidden": "ViTModel", "classes": "ViTForImageClassification"},
        {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 24,
            "image_size": 12,
            "patch_size": 4,
            **LABELS,
        },
        {
            "activation": {"hidden_act": "relu"},
            "without attention bias": {"qkv_bias": False},
            "epsilon": {"layer_norm_eps": 0.1},
            "one channel": {"num_channels": 1},
            "patch_size": {"patch_size": 6},
            "oblong": {"image_size": [8, 12], "patch_size": [4, 2]},
        },
    ),
    "gemma3_text": Family(
        "Gemma3DecoderLayer",
        {"logits": "Gemma3ForCausalLM", "hidden": "Gemma3TextModel"},
        {**_GEMMA, "layer_types": _WINDOWS},
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
        _causal("Qwen3Moe"),
        {
            **_LLAMA,
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
        _causal("Phi3"),
        {
            **_LLAMA,
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
            "partial_rotary_factor, newer": _newer("default", partial_rotary_factor=0.5),
            "longrope, short text": _scaling("longrope", **_LONG),
            "longrope": {"original_max_position_embeddings": 8, **_scaling("longrope", **_LONG)},
            "longrope, newer": {"original_max_position_embeddings": 8, **_newer("longrope", **_LONG)},
        },
    ),
    "olmo2": Family(
        "Olmo2DecoderLayer",
        _causal("Olmo2"),
        {**_LLAMA, **LABELS},
        {**_COMMON, **ROTARY, "attention_bias": {"attention_bias": True}},
    ),
    "opt": Family(
        "OPTDecoderLayer",
        _causal("OPT"),
        {
            **TEXT,
            "hidden_size": 16,
            "ffn_dim": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 16,
            **LABELS,
        },
        {
            "activation": {"activation_function": "gelu"},
            "untied": {"tie_word_embeddings": False},
            "post-norm": {"do_layer_norm_before": False},
            "without final norm": {"_remove_final_layer_norm": True},
            "word_embed_proj_dim": {"word_embed_proj_dim": 10},
            "without bias": {"enable_bias": False},
            "norms without parameters": {"layer_norm_elementwise_affine": False},
        },
    ),
    "gptj": Family(
        "GPTJBlock",
        _causal("GPTJ"),
        {**TEXT, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4, **LABELS},
        {
            "activation": {"activation_function": "relu"},
            "n_inner": {"n_inner": 20},
            "epsilon": {"layer_norm_epsilon": 0.1},
            "rotary_dim": {"rotary_dim": 8},
            "tied": {"tie_word_embeddings": True},
        },
    ),
    "albert": Family(
        "AlbertLayer",
        _encoder("Albert"),
        {**_BERT, "embedding_size": 10},
        {
            **_BERT_SWITCHES,
            "gelu_new": {"hidden_act": "gelu"},
            "embedding_size": {"embedding_size": 16},
            "num_hidden_groups": {"num_hidden_groups": 2},
            "inner_group_num": {"inner_group_num": 2},
        },
    ),
    "modernbert": Family(
        "ModernBertEncoderLayer",
        _encoder("ModernBert"),
        {
            **TEXT,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "max_position_embeddings": 64,
            "local_attention": 4,
            "pad_token_id": 0,
            **LABELS,
        },
        {
            "activation": {"hidden_activation": "silu"},
            "epsilon": {"norm_eps": 0.1},
            "biases": {"norm_bias": True, "attention_bias": True, "mlp_bias": True},
            "local_attention": {"local_attention": 8},
            "global_attn_every_n_layers": {"global_attn_every_n_layers": 2},
            "layer_types": {"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
            "global_rope_theta": {"global_rope_theta": 100.0},
            "local_rope_theta": {"local_rope_theta": 100.0},
            "rotary, newer": {
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0},
                }
            },
            "decoder_bias": {"decoder_bias": False},
            "classifier_bias": {"classifier_bias": True},
            "classifier_activation": {"classifier_activation": "relu"},
            "untied": {"tie_word_embeddings": False},
        },
        {"classifier_pooling": {"classifier_pooling": "mean"}},
    ),
}
