"""The Qwen 2 family: configuration and tensor map of Hugging Face's `qwen2` checkpoints."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family


def used_window(settings: Settings, default: int | None = 4096) -> int | None:
    """Read the size of the window; `None` if windows aren't used.

    Args:
        settings: the checkpoint's `config.json`.
        default: the value of an absent `sliding_window`.
    """
    window = settings.optional("sliding_window", default)
    return window if settings.boolean("use_sliding_window", False) else None


def with_later_windows(settings: Settings, config: Config) -> Config:
    """Return a configuration with windows in its later layers, if the checkpoint uses windows.

    Args:
        settings: the checkpoint's `config.json`.
        config: the configuration.
    """
    window = used_window(settings)
    full = settings.integer("max_window_layers", 28, least=0)
    return decoder.with_windows(settings, config, window, lambda i: window is not None and i >= full)


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Qwen 2 checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("use_mrope", False)
    config = decoder.read_config(settings, "qwen2", key_value_heads=32, attention_bias=True)
    return with_later_windows(settings, config)


FAMILY = Family(read_config, decoder.tensor_map, **decoder.NAMES)
