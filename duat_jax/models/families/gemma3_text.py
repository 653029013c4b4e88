"""The Gemma 3 text family: configuration and tensor map of Hugging Face's `gemma3_text` checkpoints."""

from functools import partial

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.gemma2 import read_gemma, with_capped_logits
from duat_jax.models.families.rotary import of_full_attention, parameters_of, read_rotary


def read_config(settings: Settings) -> Config:
    """Read the configuration of a Gemma 3 text checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("attn_logit_softcapping", None)
    both_ways = settings.boolean("use_bidirectional_attention", False)
    window = settings.optional("sliding_window", 4096)
    if both_ways and window is not None:
        window = window // 2 + 1  # of which half lies ahead
    config = read_gemma(
        settings,
        "gemma3_text",
        rotary=partial(of_full_attention, base=1e6),
        causal=not both_ways,
        query_key_norm="head",
    )
    pattern = settings.integer("sliding_window_pattern", 6)
    config = decoder.with_windows(settings, config, window, lambda i: bool((i + 1) % pattern))
    local = read_rotary(
        settings,
        config.blocks[0].head_features or 1,
        base_field="rope_local_base_freq",
        parameters=parameters_of(settings, decoder.SLIDING),
    ).rotary
    config = decoder.with_blocks(config, rotary=tuple(b.rotary if b.window is None else local for b in config.blocks))
    return with_capped_logits(config, settings.optional_number("final_logit_softcapping"))


FAMILY = Family(read_config, decoder.tensor_map, **decoder.NAMES)
