"""Cohere's decoders, Command R and Aya: one norm without offset for attention and MLP in parallel."""

from functools import partial
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.decoder import biases
from duat_jax.models.families.rotary import read_rotary


def _turned_windows(settings: Settings, config: Config) -> Config:
    """Cohere 2: most layers have windows, and these alone have rotary positions."""
    size, pattern = settings.optional("sliding_window", 4096), settings.integer("sliding_window_pattern", 4)
    config = decoder.with_windows(settings, config, size, lambda i: bool((i + 1) % pattern))
    return decoder.with_rotary_where(config, lambda _, block: block.window is not None)


COHERE: dict[str, Any] = {
    "names": decoder.LLAMA.but(decoder.ONE_NORM),
    "tied": True,
    "heads": ("next token", "hidden"),
    "epsilon": ("layer_norm_eps", 1e-5),
    "arrangement": "parallel",
    **biases(),
    "norm": "layer",
    "norm_bias": False,
    "read_out": {"scale": lambda settings: settings.number("logit_scale", 0.0625)},
}

FAMILIES = decoder.families(
    {
        "cohere": {
            **COHERE,
            "expect": {"use_qk_norm": False},
            "rotary": partial(read_rotary, base=500_000.0, interleaved=True),
        },
        "cohere2": {
            **COHERE,
            "expect": {"use_qk_norm": False, "position_embedding_type": "rope_gptj"},
            "rotary": partial(read_rotary, interleaved=True),
            "adjust": _turned_windows,
        },
    }
)
