"""The Qwen 3 family: configuration and tensor map of Hugging Face's `qwen3` checkpoints."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.qwen2 import with_later_windows


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Qwen 3 checkpoint.

    Args:
        settings: its `config.json`.
    """
    bias = settings.boolean("attention_bias", False)
    config = decoder.read_config(
        settings,
        "qwen3",
        key_value_heads=32,
        head_features=128,
        attention_bias=bias,
        output_bias=bias,
        query_key_norm="head",
    )
    return with_later_windows(settings, config)


FAMILY = Family(read_config, decoder.tensor_map, **decoder.NAMES)
