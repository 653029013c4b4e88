"""The decoders that are not like Llama."""

from .family import ABSENT, LABELS, TEXT, Family, causal
from .llamas import ROTARY, newer

_LONGROPE = {
    "original_max_position_embeddings": 8,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.5, 2.0], "long_factor": [1.0, 2.0, 9.0]},
}
"""One factor for each pair of turned features."""

DECODERS: dict[str, Family] = {
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
    "gpt_neox": Family(
        "GPTNeoXLayer",
        causal("GPTNeoX"),
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
                **newer("default", partial_rotary_factor=0.5),
            },
            **{name: ROTARY[name] for name in ("linear", "dynamic", "llama3", "yarn")},
            "rotary_pct: odd": {"rotary_pct": 0.4},
            "rotary_pct: odd: dynamic": {"rotary_pct": 0.7, **ROTARY["dynamic"]},
            "rotary_pct: odd: llama3": {"rotary_pct": 0.7, **ROTARY["llama3"]},
            "rotary_pct: odd: longrope": {"rotary_pct": 0.7, **_LONGROPE},
            "rotary_pct: none": {"rotary_pct": 0.1},
        },
    ),
    "opt": Family(
        "OPTDecoderLayer",
        causal("OPT"),
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
        causal("GPTJ"),
        {**TEXT, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4, **LABELS},
        {
            "activation": {"activation_function": "relu"},
            "n_inner": {"n_inner": 20},
            "epsilon": {"layer_norm_epsilon": 0.1},
            "rotary_dim": {"rotary_dim": 8},
            "tied": {"tie_word_embeddings": True},
        },
    ),
}
