"""The Gemma 2 family: configuration and tensor map of Hugging Face's `gemma2` checkpoints."""

import dataclasses
import math
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family


def read_gemma(settings: Settings, family: str, **parts: Any) -> Config:
    """Read the configuration of a Gemma 2 or 3: four norms in a block, scaled embeddings, wide heads.

    Args:
        settings: the checkpoint's `config.json`.
        family: its family.
        **parts: what differs, by the names of `decoder.read_config`.
    """
    bias = settings.boolean("attention_bias", False)
    config = decoder.read_config(
        settings,
        family,
        tied=True,
        filler=0,
        activation=("hidden_activation", "gelu_pytorch_tanh"),
        key_value_heads=4,
        head_features=256,
        attention_bias=bias,
        output_bias=bias,
        scale=settings.number("query_pre_attn_scalar", 256.0) ** -0.5,
        output_norms=True,
        norm_weight_offset=1.0,
        **parts,
    )
    return dataclasses.replace(config, embedding_scale=math.sqrt(config.features))


def with_capped_logits(config: Config, cap: float | None) -> Config:
    """Return a configuration with a soft cap on the logits of tokens.

    Args:
        config: the configuration.
        cap: the size; no limit if absent.
    """
    if config.head.kind != "next token":
        return config
    return dataclasses.replace(config, head=dataclasses.replace(config.head, cap=cap))


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Gemma 2 checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("use_bidirectional_attention", False)
    window = settings.optional("sliding_window", 4096)
    settings.expect("sliding_window_size", window)
    config = read_gemma(settings, "gemma2", score_cap=settings.optional_number("attn_logit_softcapping", 50.0))
    config = decoder.with_windows(settings, config, window, lambda i: i % 2 == 0)
    return with_capped_logits(config, settings.optional_number("final_logit_softcapping", 30.0))


FAMILY = Family(read_config, decoder.tensor_map, **decoder.NAMES)
