"""The OLMo 2 family: configuration and tensor map of Hugging Face's `olmo2` checkpoints."""

from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family


def read_olmo(settings: Settings, family: str, **parts: Any) -> Config:
    """Read the configuration of an OLMo 2 or 3: norms on outputs, and on all query and key heads together.

    Args:
        settings: the checkpoint's `config.json`.
        family: its family.
        **parts: what differs, by the names of `decoder.read_config`.
    """
    bias = settings.boolean("attention_bias", False)
    return decoder.read_config(
        settings,
        family,
        epsilon=("rms_norm_eps", 1e-5),
        filler=1,
        attention_bias=bias,
        output_bias=bias,
        query_key_norm="all heads",
        norm_1=False,
        norm_2=False,
        output_norms=True,
        **parts,
    )


def read_config(settings: Settings) -> Config:
    """Read the configuration of an OLMo 2 checkpoint.

    Args:
        settings: its `config.json`.
    """
    return read_olmo(settings, "olmo2")


FAMILY = Family(read_config, decoder.tensor_map, **decoder.NAMES)
