"""The Qwen 3 mixture-of-experts family: configuration and tensor map of Hugging Face's `qwen3_moe` checkpoints."""

import dataclasses
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.qwen2 import used_window
from duat_jax.models.families.tensor_map import Entry
from duat_jax.nn.config import BlockConfig


def _layer(block: BlockConfig) -> list[Entry]:
    if block.mlp != "experts":
        return decoder.layer(block)
    experts = decoder.experts(block, "mlp", gate="gate_proj", factor="up_proj", output="down_proj")
    return [*decoder.attention(block), *experts, *decoder.norms(block)]


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Qwen 3 mixture-of-experts checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.rename("num_experts", "num_local_experts")
    bias = settings.boolean("attention_bias", False)
    config = decoder.read_config(
        settings,
        "qwen3_moe",
        key_value_heads=4,
        window=used_window(settings),
        attention_bias=bias,
        output_bias=bias,
        query_key_norm="head",
    )
    routed: dict[str, Any] = {
        "mlp": "experts",
        "neurons": settings.integer("moe_intermediate_size", 768),
        "experts": settings.count("num_local_experts", 128),
        "chosen_experts": settings.integer("num_experts_per_tok", 8),
        "normalised_experts": settings.boolean("norm_topk_prob", False),
    }
    step, dense = settings.integer("decoder_sparse_step", 1), settings.integers("mlp_only_layers")
    blocks = tuple(
        block if i in dense or (i + 1) % step else dataclasses.replace(block, **routed)
        for i, block in enumerate(config.blocks)
    )
    return dataclasses.replace(config, blocks=blocks)


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    return decoder.tensor_map(config, _layer)


FAMILY = Family(read_config, tensor_map, **decoder.NAMES)
