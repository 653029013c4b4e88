"""Phi's decoders: Phi 1, 1.5 and 2 with one norm for attention and MLP in parallel, and Phi 3."""

from functools import partial

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.families import decoder
from duat_jax.models.families.decoder import window
from duat_jax.models.families.names import GATE_AND_FACTOR, QUERY_KEY_VALUE
from duat_jax.models.families.rotary import Positions, read_rotary

OWN_CODE = {
    "AutoConfig": "configuration_phi3.Phi3Config",
    "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
    "AutoTokenizer": "Xenova/gpt-4o",
}
"""The fields of checkpoints from before Phi 3 was part of the library."""

SCALINGS = {"default": "default"} | dict.fromkeys(("longrope", "su", "yarn"), "longrope")
"""The names of LongRoPE in Phi 3 over time."""


def _rotary_of_phi3(settings: Settings, head_features: int) -> Positions:
    """Read the rotary positions of Phi 3, and note a problem for code of the checkpoint's own."""
    own_code = settings.group("auto_map") or Settings({})
    for name, expected in OWN_CODE.items():
        own_code.expect(name, expected)
    original = settings.integer("original_max_position_embeddings", 4096)
    return read_rotary(settings, head_features, partial=1.0, kinds=SCALINGS, original=original, rounded=True)


FAMILIES = decoder.families(
    {
        "phi": {
            "names": decoder.LLAMA.but(
                {
                    **decoder.ONE_NORM,
                    "attention.output": "self_attn.dense",
                    "mlp.input": "mlp.fc1",
                    "mlp.output": "mlp.fc2",
                },
                outside={"embedding.token": "embed_tokens", "final_norm": "final_layernorm"},
            ),
            "expect": {"qk_layernorm": False},
            "activation": ("hidden_act", "gelu_new"),
            "epsilon": ("layer_norm_eps", 1e-5),
            "rotary": partial(read_rotary, partial=0.5),
            "arrangement": "parallel",
            "attention_bias": True,
            "output_bias": True,
            "mlp": "plain",
            "mlp_bias": True,
            "norm": "layer",
            "read_out": {"bias": True},
        },
        "phi3": {
            "names": decoder.LLAMA.but(
                {QUERY_KEY_VALUE: "self_attn.qkv_proj", GATE_AND_FACTOR: "mlp.gate_up_proj"},
            ),
            "expect": {
                **dict.fromkeys(("attention_bias", "mlp_bias", "lm_head_bias"), False),
                **dict.fromkeys(("full_attn_mod", "interpolate_factor"), 1),
            },
            "filler": 32_000,
            "rotary": _rotary_of_phi3,
            "epsilon": ("rms_norm_eps", 1e-5),
            "window": window(),
        },
    }
)
