"""The SmolLM3 family: configuration and tensor map of Hugging Face's `smollm3` checkpoints."""

from functools import partial

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.qwen2 import used_window
from duat_jax.models.families.rotary import read_rotary


def read_config(settings: Settings) -> Config:
    """Read the configuration of a SmolLM3 checkpoint: some of its layers have no rotary positions.

    Args:
        settings: its `config.json`.
    """
    bias = settings.boolean("attention_bias", False)
    config = decoder.read_config(
        settings,
        "smollm3",
        tied=True,
        filler=128_004,
        key_value_heads=4,
        rotary=partial(read_rotary, base=2e6),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=settings.boolean("mlp_bias", False),
    )
    interval, no_rope_layers = settings.integer("no_rope_layer_interval", 4), settings.integers("no_rope_layers")
    turned = (
        no_rope_layers if settings.has("no_rope_layers") else tuple((i + 1) % interval for i in range(config.layers))
    )
    if len(turned) < config.layers:
        settings.problems.append(f"no_rope_layers must have a number for each of {config.layers} layers")
        turned = (1,) * config.layers
    window = used_window(settings, None)
    config = decoder.with_windows(settings, config, window, lambda i: window is not None and not turned[i])
    return decoder.with_blocks(
        config, rotary=tuple(config.blocks[i].rotary if t else None for i, t in enumerate(turned[: config.layers]))
    )


FAMILY = Family(read_config, decoder.tensor_map, **decoder.NAMES)
