"""The Granite family: configuration and tensor map of Hugging Face's `granite` checkpoints."""

import dataclasses

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Granite checkpoint: a Llama with four scales.

    Args:
        settings: its `config.json`.
    """
    bias = settings.boolean("attention_bias", False)
    config = decoder.read_config(
        settings,
        "granite",
        heads=("next token", "hidden"),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=settings.boolean("mlp_bias", False),
        scale=settings.number("attention_multiplier", 1.0),
        residual_scale=settings.number("residual_multiplier", 1.0),
    )
    config = dataclasses.replace(config, embedding_scale=settings.number("embedding_multiplier", 1.0))
    return decoder.with_scaled_logits(config, 1 / settings.number("logits_scaling", 1.0))


FAMILY = Family(read_config, decoder.tensor_map, **decoder.NAMES)
