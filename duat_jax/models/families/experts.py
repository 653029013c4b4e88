"""Decoders whose MLPs are experts that a router chooses."""

import dataclasses
from functools import partial
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.decoder import biases, flag, window
from duat_jax.models.families.llama import GRANITE
from duat_jax.models.families.qwen import used_window
from duat_jax.models.families.rotary import Positions, read_rotary
from duat_jax.models.families.tensor_map import Entry, head_by_head
from duat_jax.nn.config import BlockConfig

SCALING = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}
"""The default scaling of rotary positions of GPT-OSS."""

ROUTED = decoder.LLAMA.but(
    {
        "experts.router": "mlp.gate",
        "experts.input": "mlp.experts.{expert}.gate_proj",
        "experts.factor": "mlp.experts.{expert}.up_proj",
        "experts.output": "mlp.experts.{expert}.down_proj",
    }
)


def experts(field: str, count: int, chosen: int) -> dict[str, Any]:
    """Return the parts of blocks with experts."""
    return {
        "mlp": "experts",
        "experts": lambda settings: settings.count(field, count),
        "chosen_experts": lambda settings: settings.integer("num_experts_per_tok", chosen),
    }


def _some_routed(settings: Settings, config: Config) -> Config:
    """Qwen 3: some layers have experts, of another width."""
    settings.rename("num_experts", "num_local_experts")
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


def _rotary_of_gpt_oss(settings: Settings, head_features: int) -> Positions:
    """Read the rotary positions of GPT-OSS, which are scaled where nothing is said."""
    silent = not settings.has("rope_scaling") and not settings.has("rope_parameters")
    return read_rotary(settings, head_features, base=150_000.0, parameters=Settings(SCALING) if silent else None)


def _gated_by_sigmoids(settings: Settings, config: Config) -> Config:
    """GPT-OSS: an activation of its own, and windows in every second layer."""
    if (quantised := settings.group("quantization_config")) is not None:
        quantised.expect("quant_method", "mxfp4")
        quantised.ignore("modules_to_not_convert")  # the files say which tensors are stored so
    settings.expect("experts_per_token", config.blocks[0].chosen_experts)
    config = decoder.with_blocks(config, activation=("quick_gelu",) * config.layers)
    return decoder.with_windows(settings, config, settings.optional("sliding_window", 128), lambda i: i % 2 == 0)


def _experts_of_gpt_oss(block: BlockConfig) -> list[Entry]:
    """Return the entries of GPT-OSS's sinks and experts, whose gates and factors are stored neuron by neuron."""
    together, stored = head_by_head(block.neurons), "layers.{i}.mlp.experts"
    return [
        Entry("layers.{i}.self_attn.sinks", ("block.attention.sinks",)),
        Entry(f"{stored}.gate_up_proj", ("block.mlp.input", "block.mlp.factor"), together),
        Entry(f"{stored}.gate_up_proj_bias", ("block.mlp.input_bias", "block.mlp.factor_bias"), together),
        Entry(f"{stored}.down_proj", ("block.mlp.output",)),
        Entry(f"{stored}.down_proj_bias", ("block.mlp.output_bias",)),
    ]


FAMILIES = decoder.families(
    {
        "mixtral": {
            "names": decoder.LLAMA.but(
                {
                    "experts.router": "block_sparse_moe.gate",
                    "experts.input": "block_sparse_moe.experts.{expert}.w1",
                    "experts.factor": "block_sparse_moe.experts.{expert}.w3",
                    "experts.output": "block_sparse_moe.experts.{expert}.w2",
                }
            ),
            "rotary": partial(read_rotary, base=1e6),
            "epsilon": ("rms_norm_eps", 1e-5),
            "key_value_heads": 8,
            "window": window(),
            **experts("num_local_experts", 8, 2),
            "renamed": {"num_experts": "num_local_experts"},
        },
        "qwen3_moe": {
            "names": ROUTED,
            "key_value_heads": 4,
            "window": used_window,
            **biases(),
            "query_key_norm": "head",
            "adjust": _some_routed,
        },
        "olmoe": {
            "names": ROUTED,
            "heads": ("next token", "hidden"),
            "expect": {"clip_qkv": None},
            "epsilon": ("rms_norm_eps", 1e-5),
            **biases(),
            "query_key_norm": "all heads",
            **experts("num_experts", 64, 8),
            "renamed": {"num_local_experts": "num_experts"},
            "normalised_experts": flag("norm_topk_prob"),
        },
        "granitemoe": {
            "names": decoder.LLAMA.but(
                {
                    "experts.router": "block_sparse_moe.router.layer",
                    ("experts.input", "experts.factor"): "block_sparse_moe.input_linear",
                    "experts.output": "block_sparse_moe.output_linear",
                }
            ),
            **GRANITE,
            **experts("num_local_experts", 8, 2),
        },
        "gpt_oss": {
            "names": decoder.LLAMA.but({"experts.router": "mlp.router"}, further=_experts_of_gpt_oss),
            # "silu" is then one of its own, with this slope.
            "expect": {"hidden_act": "silu", "swiglu_alpha": 1.702},
            "rotary": _rotary_of_gpt_oss,
            "epsilon": ("rms_norm_eps", 1e-5),
            "key_value_heads": 8,
            "head_features": 64,
            **biases(default=True),
            "sinks": True,
            "mlp_bias": True,
            **experts("num_local_experts", 128, 4),
            "renamed": {"num_experts": "num_local_experts"},
            "expert_limit": lambda settings: settings.number("swiglu_limit", 7.0),
            "adjust": _gated_by_sigmoids,
        },
    }
)
