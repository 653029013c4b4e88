"""Settings that make a model of a model type small."""

from typing import Any

import transformers
from transformers.models.auto import configuration_auto

LAYERS = (
    "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers depth"
    " num_decoder_layers"
)
CHOSEN = "num_experts_per_tok num_experts_per_token moe_topk top_k_experts moe_k"
SIZES = {
    2: f"{LAYERS} {CHOSEN} latent_query_num",
    1: "n_group num_expert_group topk_group n_shared_experts first_k_dense_replace moe_layer_start_index num_mtp_layers"
    " num_nextn_predict_layers",
    32: "hidden_size d_model n_embd dim embed_dim word_embed_proj_dim embedding_size hidden_dim d_embed q_lora_rank"
    " out_hidden_size text_hidden_size audio_hidden_size condition_dim projection_dim upsample_groups",
    64: "intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim decoder_ffn_dim ffn_hidden_size dim_ff"
    " shared_expert_intermediate_size moe_shared_expert_intermediate_size max_position_embeddings n_positions"
    " max_source_positions max_target_positions mamba_d_ssm",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts"
    " n_routed_experts num_local_experts moe_num_experts num_queries",
    8: "head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim patch_size d_kv kv_lora_rank state_size mamba_d_state"
    " ssm_state_size rotary_dim mamba_n_heads mamba_d_head",
    16: "context_size moe_intermediate_size expert_ffn_hidden_size moe_ffn_hidden_size",
    48: "image_size",
    0: "num_kv_shared_layers",
}
VOCABULARY = {64: "vocab_size", 0: "pad_token_id bos_token_id eos_token_id decoder_start_token_id"}
DEEP = {2: LAYERS, 0: SIZES[0]}
SMALLEST = SIZES | {number: f"{SIZES[number]} {names}" for number, names in VOCABULARY.items()}
LADDER = (
    *((sizes, False) for sizes in (SMALLEST, SIZES, DEEP | {48: SIZES[48]}, DEEP)),
    *((sizes, True) for sizes in (SMALLEST, DEEP | {48: SIZES[48]})),
)
"""Sizes of names, the smallest first, and whether inner settings begin with what the outer ones give them.

The next ones are tried where a model's own settings don't fit these.
"""
ROTARY = {"rope_type": "default", "rope_theta": 10_000.0}
RESNET = {"model_type": "resnet", "depths": [1, 1, 1, 1], "out_features": ["stage2", "stage3", "stage4"]}
OF_TYPE: dict[str, dict[str, Any]] = {
    "mamba2": {"hidden_size": 32, "num_heads": 8, "head_dim": 8},
    "blip-2": {"image_token_index": 20, "num_query_tokens": 1},
    "instructblip": {"image_token_index": 20, "num_query_tokens": 1},
    "instructblipvideo": {"video_token_index": 20, "num_query_tokens": 1},
    "longformer": {"attention_window": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    **{name: {"vocabulary_map": {"<image>": 4}} for name in ("chameleon", "emu3")},
    **{name: {"prediction_length": 4} for name in ("autoformer", "informer", "time_series_transformer")},
}
"""Settings of a model type that don't follow from its default ones."""


def small(settings: type, sizes: dict[int, str], inherits: bool, outer: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return arguments of a configuration that make its model small.

    Args:
        settings: the configuration.
        sizes: the sizes of names.
        inherits: whether inner configurations begin with what the outer one gives them.
        outer: what this one is given.
    """
    arguments = {key: value for key, value in (outer or {}).items() if settings().to_dict().get(key) != value}
    defaults = settings(**arguments).to_dict()
    size_of = {name: size for size, names in sizes.items() for name in names.split()}
    layers = next((defaults[name] for name in LAYERS.split() if isinstance(defaults.get(name), int)), 0)
    if isinstance(defaults.get("depths"), list):  # stages, each with widths of its own
        size_of = {name: size for name, size in size_of.items() if name == "image_size"}
        layers = 0 if inherits else layers
    kinds = defaults.get("layer_types") or []
    other = next((index for index, kind in enumerate(kinds) if kind != kinds[0]), 1)
    for name, value in defaults.items():
        inner = getattr(settings, "sub_configs", {}).get(name)
        if isinstance(value, dict) and value.get("model_type") in configuration_auto.CONFIG_MAPPING:
            model_type = value["model_type"]
            if model_type == "timm_backbone":  # of a package of its own
                arguments[name] = RESNET
                continue
            inner, value = configuration_auto.CONFIG_MAPPING[model_type], value if inherits else None
            arguments[name] = small(inner, sizes, inherits, value) | {"model_type": model_type}
        elif inner is not None and inner is not transformers.AutoConfig and isinstance(value, dict):
            arguments[name] = small(inner, sizes, inherits, value if inherits else None)
        elif name == "head_dim" and "qk_nope_head_dim" in defaults:  # which follows from its parts
            continue
        elif name == "num_key_value_heads" and 32 in sizes and (value is None or isinstance(value, int)):
            arguments[name] = 4 if value in (None, defaults.get("num_attention_heads")) else 2
        elif name in CHOSEN.split() and name in size_of and value:
            arguments[name] = min(size_of[name], value)
        elif name in size_of and (value is None or (isinstance(value, int) and (value or not size_of[name]))):
            arguments[name] = size_of[name]
        elif name in size_of and name == "image_size" and isinstance(value, list | tuple):
            arguments[name] = [size_of[name]] * len(value)
        elif isinstance(value, list) and layers > 2 and len(value) == layers:
            arguments[name] = [value[0], value[other]]
        elif name in ("depths", "encoder_depths") and value:
            arguments[name] = [1] * len(value)
        elif name == "rope_parameters" and 32 in sizes and _by_sections(settings, value or {}):
            turned = int(4 * (value or {}).get("partial_rotary_factor", 1))
            sections = [turned - turned // 4 * 2, turned // 4, turned // 4]
            arguments[name] = (value or ROTARY) | {"mrope_section": sections}
    if set(getattr(settings, "sub_configs_defaults", ())) == {"encoder", "decoder"}:  # any two models, put together
        arguments["decoder"] |= {"is_decoder": True, "add_cross_attention": True}
    return arguments | OF_TYPE.get(settings.model_type, {})


def _by_sections(settings: type, rotary: dict[str, Any]) -> bool:
    """Return whether positions of several axes turn sections of a head, in every layer alike."""
    several = any(isinstance(each, dict) for each in rotary.values())
    return "mrope_section" in getattr(settings, "ignore_keys_at_rope_validation", ()) and not several
