"""The Phi 3 family: configuration and tensor map of Hugging Face's `phi3` checkpoints."""

from functools import partial

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.rotary import read_rotary
from duat_jax.models.families.tensor_map import SIDE_BY_SIDE, Entry, linear, transposed
from duat_jax.nn.config import BlockConfig

OWN_CODE = {
    "AutoConfig": "configuration_phi3.Phi3Config",
    "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
    "AutoTokenizer": "Xenova/gpt-4o",
}
"""The fields of checkpoints from before this family was part of the library."""

SCALINGS = {"default": "default"} | dict.fromkeys(("longrope", "su", "yarn"), "longrope")
"""The names of LongRoPE in this family over time."""


def _layer(block: BlockConfig) -> list[Entry]:
    def together(stored: str, *ours: str) -> list[Entry]:
        return linear(f"layers.{{i}}.{stored}", *ours, transform=transposed(SIDE_BY_SIDE), bias=False)

    return [
        *together("self_attn.qkv_proj", *(f"block.attention.{part}" for part in ("query", "key", "value"))),
        *linear("layers.{i}.self_attn.o_proj", "block.attention.output", bias=False),
        *together("mlp.gate_up_proj", "block.mlp.input", "block.mlp.factor"),
        *linear("layers.{i}.mlp.down_proj", "block.mlp.output", bias=False),
        *decoder.norms(block),
    ]


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Phi 3 checkpoint.

    Args:
        settings: its `config.json`.
    """
    for name in ("attention_bias", "mlp_bias", "lm_head_bias"):
        settings.expect(name, False)
    for name in ("full_attn_mod", "interpolate_factor"):
        settings.expect(name, 1)
    own_code = settings.group("auto_map") or Settings({})
    for name, expected in OWN_CODE.items():
        own_code.expect(name, expected)
    original = settings.integer("original_max_position_embeddings", 4096)
    return decoder.read_config(
        settings,
        "phi3",
        rotary=partial(read_rotary, partial=1.0, kinds=SCALINGS, original=original, rounded=True),
        epsilon=("rms_norm_eps", 1e-5),
        filler=32_000,
        window=settings.optional("sliding_window"),
    )


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    return decoder.tensor_map(config, _layer)


FAMILY = Family(read_config, tensor_map, **decoder.NAMES)
