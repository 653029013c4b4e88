"""The Mixtral family: configuration and tensor map of Hugging Face's `mixtral` checkpoints."""

from functools import partial

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.rotary import read_rotary
from duat_jax.models.families.tensor_map import Entry
from duat_jax.nn.config import BlockConfig


def _layer(block: BlockConfig) -> list[Entry]:
    experts = decoder.experts(block, "block_sparse_moe", gate="w1", factor="w3", output="w2")
    return [*decoder.attention(block), *experts, *decoder.norms(block)]


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Mixtral checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.rename("num_experts", "num_local_experts")
    return decoder.read_config(
        settings,
        "mixtral",
        rotary=partial(read_rotary, base=1e6),
        epsilon=("rms_norm_eps", 1e-5),
        key_value_heads=8,
        window=settings.optional("sliding_window"),
        mlp="experts",
        experts=settings.count("num_local_experts", 8),
        chosen_experts=settings.integer("num_experts_per_tok", 2),
    )


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    return decoder.tensor_map(config, _layer)


FAMILY = Family(read_config, tensor_map, **decoder.NAMES)
