"""The OLMo 2 family: configuration and tensor map of Hugging Face's `olmo2` checkpoints."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder

PREFIX, IGNORED, HEADS, LAYER, OLDER, COPIES = decoder.NAMES
HARMLESS = frozenset(("attention_dropout",))
"""Fields of this family that leave the computation as it is."""


def read_config(settings: Settings) -> Config:
    """Return the parts of an OLMo 2 checkpoint.

    Args:
        settings: its `config.json`.
    """
    bias = settings.boolean("attention_bias", False)
    return decoder.read_config(
        settings,
        "olmo2",
        epsilon=1e-5,
        filler=1,
        attention_bias=bias,
        output_bias=bias,
        query_key_norm="all heads",
        norm_1=False,
        norm_2=False,
        output_norms=True,
    )


tensor_map = decoder.tensor_map
