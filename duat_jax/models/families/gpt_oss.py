"""The GPT-OSS family: configuration and tensor map of Hugging Face's `gpt_oss` checkpoints."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.rotary import Positions, read_rotary
from duat_jax.models.families.tensor_map import Entry, head_by_head, linear
from duat_jax.nn.config import BlockConfig

SCALING = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}
"""The default scaling of rotary positions."""


def _rotary(settings: Settings, head_features: int) -> Positions:
    silent = not settings.has("rope_scaling") and not settings.has("rope_parameters")
    return read_rotary(settings, head_features, base=150_000.0, parameters=Settings(SCALING) if silent else None)


def _layer(block: BlockConfig) -> list[Entry]:
    gate_and_factor = head_by_head(block.neurons)  # neuron by neuron
    return [
        *decoder.attention(block),
        Entry("layers.{i}.self_attn.sinks", ("block.attention.sinks",)),
        *linear("layers.{i}.mlp.router", "block.mlp.router"),
        Entry("layers.{i}.mlp.experts.gate_up_proj", ("block.mlp.input", "block.mlp.factor"), gate_and_factor),
        Entry(
            "layers.{i}.mlp.experts.gate_up_proj_bias",
            ("block.mlp.input_bias", "block.mlp.factor_bias"),
            gate_and_factor,
        ),
        Entry("layers.{i}.mlp.experts.down_proj", ("block.mlp.output",)),
        Entry("layers.{i}.mlp.experts.down_proj_bias", ("block.mlp.output_bias",)),
        *decoder.norms(block),
    ]


def read_config(settings: Settings) -> Config:
    """Read the configuration of a GPT-OSS checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.rename("num_experts", "num_local_experts")
    settings.expect("hidden_act", "silu")  # which is then one of its own, with this slope
    settings.expect("swiglu_alpha", 1.702)
    if (quantised := settings.group("quantization_config")) is not None:
        quantised.expect("quant_method", "mxfp4")
        quantised.ignore("modules_to_not_convert")  # the files say which tensors are stored so
    chosen = settings.integer("num_experts_per_tok", 4)
    settings.expect("experts_per_token", chosen)
    bias = settings.boolean("attention_bias", True)
    config = decoder.read_config(
        settings,
        "gpt_oss",
        rotary=_rotary,
        epsilon=("rms_norm_eps", 1e-5),
        key_value_heads=8,
        head_features=64,
        attention_bias=bias,
        output_bias=bias,
        sinks=True,
        mlp="experts",
        mlp_bias=True,
        experts=settings.count("num_local_experts", 128),
        chosen_experts=chosen,
        expert_limit=settings.number("swiglu_limit", 7.0),
    )
    config = decoder.with_blocks(config, activation=("quick_gelu",) * config.layers)
    return decoder.with_windows(settings, config, settings.optional("sliding_window", 128), lambda i: i % 2 == 0)


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    return decoder.tensor_map(config, _layer)


FAMILY = Family(read_config, tensor_map, **decoder.NAMES)
