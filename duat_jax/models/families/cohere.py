"""The Cohere family: configuration and tensor map of Hugging Face's `cohere` checkpoints, Command R and Aya."""

import dataclasses
from functools import partial

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.rotary import read_rotary
from duat_jax.models.families.tensor_map import Entry
from duat_jax.nn.config import BlockConfig


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Cohere checkpoint: one norm without offset for attention and MLP in parallel.

    Args:
        settings: its `config.json`.
    """
    settings.expect("use_qk_norm", False)
    bias = settings.boolean("attention_bias", False)
    config = decoder.read_config(
        settings,
        "cohere",
        tied=True,
        heads=("next token", "hidden"),
        epsilon=("layer_norm_eps", 1e-5),
        rotary=partial(read_rotary, base=500_000.0),
        arrangement="parallel",
        attention_bias=bias,
        output_bias=bias,
        norm="layer",
        norm_bias=False,
    )
    turned = (dataclasses.replace(block.rotary, interleaved=True) for block in config.blocks if block.rotary)
    config = decoder.with_blocks(config, rotary=tuple(turned))
    return decoder.with_scaled_logits(config, settings.number("logit_scale", 0.0625))


def _layer(block: BlockConfig) -> list[Entry]:
    return [*decoder.attention(block), *decoder.gated_mlp(block), *decoder.shared_norm(block)]


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    return decoder.tensor_map(config, _layer)


FAMILY = Family(read_config, tensor_map, **decoder.NAMES)
