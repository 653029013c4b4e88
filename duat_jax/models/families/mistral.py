"""The Mistral family: configuration and tensor map of Hugging Face's `mistral` checkpoints."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Mistral checkpoint.

    Args:
        settings: its `config.json`.
    """
    window = settings.optional("sliding_window", 4096)
    return decoder.read_config(settings, "mistral", key_value_heads=8, window=window)


FAMILY = Family(read_config, decoder.tensor_map, **decoder.NAMES)
