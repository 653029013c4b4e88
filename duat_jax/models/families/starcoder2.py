"""The StarCoder2 family: configuration and tensor map of Hugging Face's `starcoder2` checkpoints."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.tensor_map import Entry, linear
from duat_jax.nn.config import BlockConfig


def read_config(settings: Settings) -> Config:
    """Read the configuration of a StarCoder2 checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("mlp_type", "default")
    settings.expect("norm_type", "layer_norm")
    bias = settings.boolean("use_bias", True)
    return decoder.read_config(
        settings,
        "starcoder2",
        tied=True,
        activation=("hidden_act", "gelu_pytorch_tanh"),
        epsilon=("norm_epsilon", 1e-5),
        key_value_heads=2,
        window=settings.optional("sliding_window"),
        attention_bias=bias,
        output_bias=bias,
        mlp="plain",
        mlp_bias=bias,
        norm="layer",
    )


def _layer(block: BlockConfig) -> list[Entry]:
    return [
        *decoder.attention(block),
        *linear("layers.{i}.mlp.c_fc", "block.mlp.input", bias=block.mlp_bias),
        *linear("layers.{i}.mlp.c_proj", "block.mlp.output", bias=block.mlp_bias),
        *decoder.norms(block),
    ]


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    return decoder.tensor_map(config, _layer)


FAMILY = Family(read_config, tensor_map, **decoder.NAMES)
