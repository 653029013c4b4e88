"""Qwen's decoders: windows in later layers, and normalised queries and keys."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.decoder import biases


def used_window(settings: Settings, default: int | None = 4096) -> int | None:
    """Read the size of the window; `None` if windows aren't used."""
    size = settings.optional("sliding_window", default)
    return size if settings.boolean("use_sliding_window", False) else None


def _later_windows(settings: Settings, config: Config) -> Config:
    """Give the later layers windows, if the checkpoint uses them."""
    size, full = used_window(settings), settings.integer("max_window_layers", 28, least=0)
    return decoder.with_windows(settings, config, size, lambda i: size is not None and i >= full)


FAMILIES = decoder.families(
    {
        "qwen2": {
            "expect": {"use_mrope": False},
            "key_value_heads": 32,
            "attention_bias": True,
            "adjust": _later_windows,
        },
        "qwen3": {
            "key_value_heads": 32,
            "head_features": 128,
            **biases(),
            "query_key_norm": "head",
            "adjust": _later_windows,
        },
    }
)
