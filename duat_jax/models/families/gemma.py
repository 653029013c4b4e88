"""Gemma's decoders: scaled embeddings, wide heads, and norms whose stored weights are less one."""

import math
from functools import partial
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.decoder import biases
from duat_jax.models.families.rotary import of_full_attention, parameters_of, read_rotary


def _activation(settings: Settings) -> str:
    """Read the activation of Gemma, whose first checkpoints say "gelu" and mean its approximation."""
    activation = settings.activation("hidden_act", "gelu_pytorch_tanh")
    return "gelu_tanh" if activation == "gelu" else activation


def _alternating(settings: Settings, config: Config) -> Config:
    """Gemma 2: every second layer has a window."""
    size = settings.optional("sliding_window", 4096)
    settings.expect("sliding_window_size", size)
    return decoder.with_windows(settings, config, size, lambda i: i % 2 == 0)


def _mostly_windows(settings: Settings, config: Config) -> Config:
    """Gemma 3: most layers have windows, and rotary positions of their own."""
    size = settings.optional("sliding_window", 4096)
    if not config.blocks[0].causal and size is not None:
        size = size // 2 + 1  # of which half lies ahead
    pattern = settings.integer("sliding_window_pattern", 6)
    config = decoder.with_windows(settings, config, size, lambda i: bool((i + 1) % pattern))
    local = read_rotary(
        settings,
        config.blocks[0].head_features or 1,
        base_field="rope_local_base_freq",
        parameters=parameters_of(settings, decoder.SLIDING),
    )
    return decoder.with_local_rotary(config, local)


GEMMA: dict[str, Any] = {
    "tied": True,
    "filler": 0,
    "head_features": 256,
    **biases(),
    "norm_weight_offset": 1.0,
    "outside": {"embedding_scale": lambda settings: math.sqrt(settings.integer("hidden_size"))},
}
GEMMA_2: dict[str, Any] = {
    **GEMMA,
    "names": decoder.LLAMA.but(decoder.OUTPUT_NORMS),
    "activation": ("hidden_activation", "gelu_pytorch_tanh"),
    "key_value_heads": 4,
    "scale": lambda settings: settings.number("query_pre_attn_scalar", 256.0) ** -0.5,
    "output_norms": True,
}
GEMMA_3: dict[str, Any] = {
    **GEMMA_2,
    "expect": {"attn_logit_softcapping": None},
    "rotary": partial(of_full_attention, base=1e6),
    "causal": lambda settings: not settings.boolean("use_bidirectional_attention", False),
    "query_key_norm": "head",
    "adjust": _mostly_windows,
}

FAMILIES = decoder.families(
    {
        "gemma": {
            **GEMMA,
            "expect": {"use_bidirectional_attention": False, "hidden_activation": "gelu_pytorch_tanh"},
            "key_value_heads": 16,
            "activation": _activation,
        },
        "gemma2": {
            **GEMMA_2,
            "expect": {"use_bidirectional_attention": False},
            "score_cap": lambda settings: settings.optional_number("attn_logit_softcapping", 50.0),
            "read_out": {"cap": lambda settings: settings.optional_number("final_logit_softcapping", 30.0)},
            "adjust": _alternating,
        },
        "gemma3_text": {
            **GEMMA_3,
            "read_out": {"cap": lambda settings: settings.optional_number("final_logit_softcapping")},
        },
        "gemma3": {
            **GEMMA_3,
            "wrapper": "gemma3_text",
            "prefix": "model.language_model.",
            "older": {"language_model.model.": "model.language_model.", "language_model.lm_head.": "lm_head."},
            "ignored": r"(model\.)?(vision_tower|multi_modal_projector)\..*",
            "harmless": (
                *("vision_config", "mm_tokens_per_image"),
                *("image_token_index", "boi_token_index", "eoi_token_index"),
            ),
        },
    }
)
