"""The StableLM family: configuration and tensor map of Hugging Face's `stablelm` checkpoints."""

from functools import partial

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.rotary import read_rotary
from duat_jax.models.families.tensor_map import Entry
from duat_jax.nn.config import BlockConfig


def read_config(settings: Settings) -> Config:
    """Read the configuration of a StableLM checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("qk_layernorm", False)
    settings.expect("head_dim", None)
    settings.divisor("num_attention_heads", "hidden_size")
    return decoder.read_config(
        settings,
        "stablelm",
        epsilon=("layer_norm_eps", 1e-5),
        key_value_heads=32,
        rotary=partial(read_rotary, partial=0.25),
        arrangement="parallel" if settings.boolean("use_parallel_residual", False) else "pre-norm",
        attention_bias=settings.boolean("use_qkv_bias", False),
        norm="layer",
    )


def _layer(block: BlockConfig) -> list[Entry]:
    norms = decoder.shared_norm if block.arrangement == "parallel" else decoder.norms
    return [*decoder.attention(block), *decoder.gated_mlp(block), *norms(block)]


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    return decoder.tensor_map(config, _layer)


FAMILY = Family(read_config, tensor_map, **decoder.NAMES)
