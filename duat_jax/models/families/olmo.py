"""OLMo's decoders: norms on outputs, and on all query and key heads together."""

from functools import partial
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.decoder import biases
from duat_jax.models.families.rotary import of_full_attention, parameters_of, read_rotary

BASE = 500_000.0
"""The value of an absent `rope_theta` in OLMo 3."""


def _windows(settings: Settings, config: Config) -> Config:
    """OLMo 3: every fourth layer has full attention."""
    size = settings.optional("sliding_window", 4096)
    config = decoder.with_windows(settings, config, size, lambda i: bool((i + 1) % 4))
    width = config.blocks[0].head_features or 1
    local = read_rotary(settings, width, base=BASE, parameters=parameters_of(settings, decoder.SLIDING))
    return decoder.with_local_rotary(config, local)


OLMO: dict[str, Any] = {
    "names": decoder.LLAMA.but(decoder.OUTPUT_NORMS),
    "epsilon": ("rms_norm_eps", 1e-5),
    "filler": 1,
    **biases(),
    "query_key_norm": "all heads",
    "norm_1": False,
    "norm_2": False,
    "output_norms": True,
}

FAMILIES = decoder.families(
    {
        "olmo2": OLMO,
        "olmo3": {
            **OLMO,
            # Outside `rope_parameters`, versions of the reference implementation apply it to different layers.
            "expect": {"rope_theta": BASE},
            "rotary": partial(of_full_attention, base=BASE),
            "adjust": _windows,
        },
    }
)
