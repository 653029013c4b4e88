"""The Phi family: configuration and tensor map of Hugging Face's `phi` checkpoints, Phi 1, 1.5 and 2."""

import dataclasses
from functools import partial

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.rotary import read_rotary
from duat_jax.models.families.tensor_map import Entry, linear
from duat_jax.nn.config import BlockConfig


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Phi checkpoint: one norm for attention and MLP in parallel.

    Args:
        settings: its `config.json`.
    """
    settings.expect("qk_layernorm", False)
    config = decoder.read_config(
        settings,
        "phi",
        activation=("hidden_act", "gelu_new"),
        epsilon=("layer_norm_eps", 1e-5),
        rotary=partial(read_rotary, partial=0.5),
        arrangement="parallel",
        attention_bias=True,
        output_bias=True,
        mlp="plain",
        mlp_bias=True,
        norm="layer",
    )
    biased = dataclasses.replace(config.head, bias=config.head.kind == "next token")
    return dataclasses.replace(config, head=biased)


def _layer(block: BlockConfig) -> list[Entry]:
    return [
        *decoder.attention(block, output="dense"),
        *linear("layers.{i}.mlp.fc1", "block.mlp.input"),
        *linear("layers.{i}.mlp.fc2", "block.mlp.output"),
        *decoder.shared_norm(block),
    ]


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    bias = [Entry("lm_head.bias", ("head.bias",))] if config.head.bias else []
    return [*decoder.tensor_map(config, _layer, final="final_layernorm"), *bias]


FAMILY = Family(read_config, tensor_map, **decoder.NAMES | {"heads": r"lm_head\.(weight|bias)|score\.weight"})
