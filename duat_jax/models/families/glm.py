"""GLM's decoders: half of each head is turned, and gate and factor are stored together."""

from functools import partial
from typing import Any

from duat_jax.models.families import decoder
from duat_jax.models.families.decoder import flag
from duat_jax.models.families.names import GATE_AND_FACTOR
from duat_jax.models.families.rotary import read_rotary

NAMES = decoder.LLAMA.but({GATE_AND_FACTOR: "mlp.gate_up_proj"})
GLM: dict[str, Any] = {
    "filler": 151_329,
    "epsilon": ("rms_norm_eps", 1.5625e-7),
    "key_value_heads": 2,
    "head_features": 128,
    "rotary": partial(read_rotary, partial=0.5, rounded=True, interleaved=True),
    "attention_bias": flag("attention_bias", True),
}

FAMILIES = decoder.families(
    {
        "glm": {**GLM, "names": NAMES},
        "glm4": {
            **GLM,
            "names": NAMES.but({"attention_norm": "post_self_attn_layernorm", "mlp_norm": "post_mlp_layernorm"}),
            "output_norms": True,
        },
    }
)
