"""The OLMo 3 family: configuration and tensor map of Hugging Face's `olmo3` checkpoints."""

from functools import partial

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.olmo2 import read_olmo
from duat_jax.models.families.rotary import of_full_attention, parameters_of, read_rotary

BASE = 500_000.0
"""The value of an absent `rope_theta`."""


def read_config(settings: Settings) -> Config:
    """Read the configuration of an OLMo 3 checkpoint: every fourth layer has full attention.

    Args:
        settings: its `config.json`.
    """
    # Outside `rope_parameters`, versions of the reference implementation apply it to different layers.
    settings.expect("rope_theta", BASE)
    config = read_olmo(settings, "olmo3", rotary=partial(of_full_attention, base=BASE))
    window = settings.optional("sliding_window", 4096)
    config = decoder.with_windows(settings, config, window, lambda i: bool((i + 1) % 4))
    width = config.blocks[0].head_features or 1
    local = read_rotary(settings, width, base=BASE, parameters=parameters_of(settings, decoder.SLIDING)).rotary
    return decoder.with_blocks(config, rotary=tuple(b.rotary if b.window is None else local for b in config.blocks))


FAMILY = Family(read_config, decoder.tensor_map, **decoder.NAMES)
