"""The Gemma family: configuration and tensor map of Hugging Face's `gemma` checkpoints."""

import dataclasses
import math

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Gemma checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("use_bidirectional_attention", False)
    settings.expect("hidden_activation", "gelu_pytorch_tanh")
    bias = settings.boolean("attention_bias", False)
    config = decoder.read_config(
        settings,
        "gemma",
        tied=True,
        filler=0,
        activation=("hidden_act", "gelu_pytorch_tanh"),
        key_value_heads=16,
        head_features=256,
        attention_bias=bias,
        output_bias=bias,
        norm_weight_offset=1.0,
    )
    # The first checkpoints say "gelu" and mean its approximation.
    activations = tuple("gelu_tanh" if block.activation == "gelu" else block.activation for block in config.blocks)
    return dataclasses.replace(
        decoder.with_blocks(config, activation=activations), embedding_scale=math.sqrt(config.features)
    )


FAMILY = Family(read_config, decoder.tensor_map, **decoder.NAMES)
