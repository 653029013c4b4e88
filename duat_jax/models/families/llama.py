"""Llama, and decoders of other makers that differ from it in a few fields."""

from functools import partial

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.decoder import biases, flag, window
from duat_jax.models.families.qwen import used_window
from duat_jax.models.families.rotary import read_rotary
from duat_jax.models.families.tensor_map import Entry


def _every_window(settings: Settings, config: Config) -> Config:
    """Ministral: every layer has a window, unless `layer_types` says otherwise."""
    size = settings.optional("sliding_window", 4096)
    return decoder.with_windows(settings, config, size, lambda _: size is not None)


def _some_turned(settings: Settings, config: Config) -> Config:
    """SmolLM3: some layers have no rotary positions, and these may have windows."""
    interval, no_rope_layers = settings.integer("no_rope_layer_interval", 4), settings.integers("no_rope_layers")
    turned = (
        no_rope_layers if settings.has("no_rope_layers") else tuple((i + 1) % interval for i in range(config.layers))
    )
    if len(turned) < config.layers:
        settings.problems.append(f"no_rope_layers must have a number for each of {config.layers} layers")
        turned = (1,) * config.layers
    size = used_window(settings, None)
    config = decoder.with_windows(settings, config, size, lambda i: size is not None and not turned[i])
    return decoder.with_rotary_where(config, lambda i, _: bool(turned[i]))


def _turned_windows(settings: Settings, config: Config) -> Config:
    """EXAONE 4: where there are windows, layers with full attention have no rotary positions."""
    size, pattern = settings.optional("sliding_window", 4096), 4
    if size is None or settings.has("layer_types"):
        settings.ignore("sliding_window_pattern")
    else:
        pattern = settings.integer("sliding_window_pattern", pattern)
    config = decoder.with_windows(settings, config, size, lambda i: size is not None and bool((i + 1) % pattern))
    return decoder.with_rotary_where(config, lambda _, block: size is None or block.window is not None)


def _stablelm_tensors(config: Config) -> list[Entry]:
    """StableLM: one norm where attention and MLP are parallel."""
    parallel = config.blocks[0].arrangement == "parallel"
    return (decoder.LLAMA.but(decoder.ONE_NORM) if parallel else decoder.LLAMA).tensor_map(config)


GRANITE = {
    "heads": ("next token", "hidden"),
    **biases(),
    "scale": lambda settings: settings.number("attention_multiplier", 1.0),
    "residual_scale": lambda settings: settings.number("residual_multiplier", 1.0),
    "outside": {"embedding_scale": lambda settings: settings.number("embedding_multiplier", 1.0)},
    "read_out": {"scale": lambda settings: 1 / settings.number("logits_scaling", 1.0)},
}
"""Four scales."""

FAMILIES = decoder.families(
    {
        "llama": {**biases(), "mlp_bias": flag("mlp_bias")},
        "mistral": {"key_value_heads": 8, "window": window(4096)},
        "ministral": {"key_value_heads": 8, "adjust": _every_window},
        "granite": {**GRANITE, "mlp_bias": flag("mlp_bias")},
        "seed_oss": {
            "filler": 1,
            "key_value_heads": 8,
            "head_features": 128,
            "attention_bias": flag("attention_bias", True),
            "output_bias": flag("attention_out_bias"),
            "mlp_bias": flag("mlp_bias"),
        },
        "helium": {
            "filler": 3,
            "epsilon": ("rms_norm_eps", 1e-8),
            "rotary": partial(read_rotary, base=100_000.0, interleaved=True),
            "key_value_heads": 20,
            "head_features": 128,
            "attention_bias": flag("attention_bias"),
            "mlp_bias": flag("mlp_bias"),
        },
        "ernie4_5": {
            "tied": True,
            "heads": ("next token", "hidden"),
            "epsilon": ("rms_norm_eps", 1e-5),
            "rotary": partial(read_rotary, base=500_000.0, interleaved=True),
            "key_value_heads": 2,
            "head_features": 128,
            **biases("use_bias"),
            "mlp_bias": flag("use_bias"),
        },
        "exaone4": {
            "names": decoder.LLAMA.but(decoder.OUTPUT_NORMS),
            "epsilon": ("rms_norm_eps", 1e-5),
            "key_value_heads": 32,
            "query_key_norm": "head",
            "norm_1": False,
            "norm_2": False,
            "output_norms": True,
            "adjust": _turned_windows,
        },
        "smollm3": {
            "tied": True,
            "filler": 128_004,
            "key_value_heads": 4,
            "rotary": partial(read_rotary, base=2e6),
            **biases(),
            "mlp_bias": flag("mlp_bias"),
            "adjust": _some_turned,
        },
        "stablelm": {
            "expect": {"qk_layernorm": False, "head_dim": None},
            "epsilon": ("layer_norm_eps", 1e-5),
            "grouped": False,
            "key_value_heads": lambda settings: settings.optional("num_key_value_heads", 32),
            "rotary": partial(read_rotary, partial=0.25),
            "arrangement": lambda settings: (
                "parallel" if settings.boolean("use_parallel_residual", False) else "pre-norm"
            ),
            "attention_bias": flag("use_qkv_bias"),
            "norm": "layer",
            "tensor_map": _stablelm_tensors,
        },
        "starcoder2": {
            "names": decoder.LLAMA.but({"mlp.input": "mlp.c_fc", "mlp.output": "mlp.c_proj"}),
            "expect": {"mlp_type": "default", "norm_type": "layer_norm"},
            "tied": True,
            "activation": ("hidden_act", "gelu_pytorch_tanh"),
            "epsilon": ("norm_epsilon", 1e-5),
            "key_value_heads": 2,
            "window": window(),
            **biases("use_bias", True),
            "mlp": "plain",
            "mlp_bias": flag("use_bias", True),
            "norm": "layer",
        },
    }
)
