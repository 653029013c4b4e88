"""The Llama family: configuration and tensor map of Hugging Face's `llama` checkpoints."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Llama checkpoint.

    Args:
        settings: its `config.json`.
    """
    bias = settings.boolean("attention_bias", False)
    return decoder.read_config(
        settings,
        "llama",
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=settings.boolean("mlp_bias", False),
    )


FAMILY = Family(read_config, decoder.tensor_map, **decoder.NAMES)
