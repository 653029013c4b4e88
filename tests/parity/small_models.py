"""A small random model of a model type of the installed transformers, and inputs that PyTorch computes it on."""

import inspect
import math
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import transformers
from torch import nn
from transformers.models.auto import configuration_auto, modeling_auto

TOKENS = 6
"""The length of a text."""
MOST = 400_000_000
"""The most parameters of a model."""
KINDS = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "CAUSAL_LM", "MASKED_LM", "IMAGE_TEXT_TO_TEXT", "CTC")
KINDS = (*(f"FOR_{kind}_" for kind in (*KINDS, "IMAGE_CLASSIFICATION")), "")
CLASSES: dict[str, list[str]] = {}
"""The classes that are tried of each model type: first those with logits of tokens."""
for kind in KINDS:
    for model_type, name in getattr(modeling_auto, f"MODEL_{kind}MAPPING_NAMES").items():
        CLASSES.setdefault(model_type, []).append(name if isinstance(name, str) else name[0])

LAYERS = (
    "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers depth"
    " num_decoder_layers"
)
SIZES = {
    2: f"{LAYERS} num_experts_per_tok num_experts_per_token moe_topk top_k_experts moe_k",
    1: "n_group topk_group n_shared_experts first_k_dense_replace moe_layer_start_index num_mtp_layers"
    " num_nextn_predict_layers",
    32: "hidden_size d_model n_embd dim embed_dim word_embed_proj_dim embedding_size hidden_dim d_embed q_lora_rank"
    " out_hidden_size text_hidden_size audio_hidden_size condition_dim projection_dim upsample_groups",
    64: "intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim decoder_ffn_dim ffn_hidden_size dim_ff"
    " shared_expert_intermediate_size moe_shared_expert_intermediate_size max_position_embeddings n_positions"
    " max_source_positions max_target_positions mamba_d_ssm",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts"
    " n_routed_experts num_local_experts moe_num_experts",
    8: "head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim patch_size d_kv kv_lora_rank state_size mamba_d_state"
    " ssm_state_size rotary_dim mamba_n_heads mamba_d_head",
    16: "context_size moe_intermediate_size expert_ffn_hidden_size moe_ffn_hidden_size",
    48: "image_size",
    0: "num_kv_shared_layers",
}
VOCABULARY = {64: "vocab_size", 0: "pad_token_id bos_token_id eos_token_id decoder_start_token_id"}
DEEP = {2: LAYERS, 0: SIZES[0]}
LADDER = (SIZES | {number: f"{SIZES[number]} {names}" for number, names in VOCABULARY.items()}, SIZES, DEEP)
"""Sizes of names, the smallest first: the next ones where a model's own settings don't fit these."""
ROTARY = {"rope_type": "default", "rope_theta": 10_000.0}
RESNET = {"model_type": "resnet", "depths": [1, 1, 1, 1], "out_features": ["stage2", "stage3", "stage4"]}
OF_TYPE: dict[str, dict[str, Any]] = {
    "mamba2": {"hidden_size": 32, "num_heads": 8, "head_dim": 8},
    "blip-2": {"image_token_index": 20, "num_query_tokens": 1},
    "longformer": {"attention_window": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    **{name: {"vocabulary_map": {"<image>": 4}} for name in ("chameleon", "emu3")},
    **{name: {"prediction_length": 4} for name in ("autoformer", "informer", "time_series_transformer")},
}
"""Settings of a model type that don't follow from its default ones."""


def small(settings: type, sizes: dict[int, str]) -> dict[str, Any]:
    """Return arguments of a configuration that make its model small.

    Args:
        settings: the configuration.
        sizes: the sizes of names.
    """
    defaults, arguments = settings().to_dict(), {}
    size_of = {name: size for size, names in sizes.items() for name in names.split()}
    if isinstance(defaults.get("depths"), list):  # stages, each with widths of its own
        size_of = {name: size for name, size in size_of.items() if name == "image_size"}
    layers = next((defaults[name] for name in LAYERS.split() if isinstance(defaults.get(name), int)), 0)
    kinds = defaults.get("layer_types") or []
    other = next((index for index, kind in enumerate(kinds) if kind != kinds[0]), 1)
    for name, value in defaults.items():
        inner = getattr(settings, "sub_configs", {}).get(name)
        if isinstance(value, dict) and value.get("model_type") in configuration_auto.CONFIG_MAPPING:
            model_type = value["model_type"]
            if model_type == "timm_backbone":  # of a package of its own
                arguments[name] = RESNET
                continue
            arguments[name] = small(configuration_auto.CONFIG_MAPPING[model_type], sizes) | {"model_type": model_type}
        elif inner is not None and inner is not transformers.AutoConfig and isinstance(value, dict):
            arguments[name] = small(inner, sizes)
        elif name == "head_dim" and "qk_nope_head_dim" in defaults:  # which follows from its parts
            continue
        elif name == "num_key_value_heads" and 32 in sizes and (value is None or isinstance(value, int)):
            arguments[name] = 4 if value in (None, defaults.get("num_attention_heads")) else 2
        elif name in size_of and (value is None or (isinstance(value, int) and (value or not size_of[name]))):
            arguments[name] = size_of[name]
        elif isinstance(value, list) and layers > 2 and len(value) == layers:
            arguments[name] = [value[0], value[other]]
        elif name in ("depths", "encoder_depths") and value:
            arguments[name] = [1] * len(value)
        elif name == "rope_parameters" and 32 in sizes and _by_sections(settings, value or {}):
            turned = int(4 * (value or {}).get("partial_rotary_factor", 1))
            sections = [turned - turned // 4 * 2, turned // 4, turned // 4]
            arguments[name] = (value or ROTARY) | {"mrope_section": sections}
    return arguments | OF_TYPE.get(settings.model_type, {})


def _by_sections(settings: type, rotary: dict[str, Any]) -> bool:
    """Return whether positions of several axes turn sections of a head, in every layer alike."""
    several = any(isinstance(each, dict) for each in rotary.values())
    return "mrope_section" in getattr(settings, "ignore_keys_at_rope_validation", ()) and not several


class FromEmbeddings(nn.Module):
    """A model as a function of the rows that it reads from its table of embeddings."""

    def __init__(self, module: nn.Module, table: nn.Module) -> None:
        super().__init__()
        self.module, self.tables, self.config = module, (table,), module.config  # a tuple: the table is registered once

    def forward(self, embeddings: torch.Tensor, **given: Any) -> Any:
        """Return the model's outputs."""
        with patch.object(self.tables[0], "forward", lambda ids, *_: embeddings):
            return self.module(**given)


def within(settings: Any, *names: str) -> Any:
    """Return the first setting of these names, of a configuration or of those inside it, nothing if there is none."""
    inside = [each for each in vars(settings).values() if isinstance(each, transformers.PreTrainedConfig)]
    for name in names:
        if getattr(settings, name, None) is not None:
            return getattr(settings, name)
    return next((size for each in inside if (size := within(each, *names)) is not None), None)


def fillings(module: nn.Module) -> dict[str, Any]:
    """Return inputs by the names that models of transformers give them.

    Args:
        module: the model.
    """
    settings = module.config
    vision = getattr(settings, "vision_config", None) or settings
    text = torch.arange(TOKENS)[None] + 20
    size, channels = getattr(vision, "image_size", None) or 48, getattr(vision, "num_channels", 3)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    grid = torch.tensor([[1, 4, 4]])
    boxes = torch.zeros(1, TOKENS, 4, dtype=torch.long)
    return {
        "input_ids": text,
        "attention_mask": torch.ones_like(text),
        "decoder_input_ids": text[:, :3],
        "qformer_input_ids": text[:, :3],
        "bbox": boxes,
        "visual_feats": torch.randn(1, 3, getattr(settings, "visual_feat_dim", 1) or 1),
        "visual_pos": torch.rand(1, 3, 4),
        "pixel_values": torch.randn(1, channels, height, width),
        "grid_thw": grid,
        "image_grid_thw": grid,
        "merge_sizes": torch.tensor([1]),
        "spatial_shapes": torch.tensor([[3, 3]]),
        "pixel_attention_mask": torch.ones(1, 9, dtype=torch.long),
        "input_features_mask": torch.ones(1, 64, dtype=torch.long),
    }


def shapes(module: nn.Module, name: str) -> Iterator[tuple[int, ...]]:
    """Yield the shapes that an input may have.

    Args:
        module: the model.
        name: the name of a floating-point input.
    """
    settings = module.config
    vision = getattr(settings, "vision_config", None) or settings
    bins = within(settings, "num_mel_bins", "feature_size") or 80
    channels = getattr(vision, "num_channels", None) or getattr(vision, "in_channels", None) or 3
    patch_size = getattr(vision, "patch_size", None) or 8
    patch_size = patch_size if isinstance(patch_size, int) else patch_size[0]
    size = getattr(vision, "image_size", None) or 48
    height, width = size if isinstance(size, list | tuple) else (size, size)
    frames = getattr(vision, "num_frames", None) or 2
    if name == "pixel_values":
        yield from (
            (1, channels, times * height, times * width) for times in (1, 2, 4) if times == 1 or times * height < 256
        )
        yield 1, frames, channels, height, width
        yield 1, 2, channels, height, width
        yield 1, 9, channels * patch_size**2
        yield 16, channels * patch_size**2
        yield 16, channels * (getattr(vision, "temporal_patch_size", None) or 1) * patch_size**2
    elif name == "pixel_values_videos":
        yield 1, frames, channels, height, width
    elif name == "input_values":
        yield from ((1, 4000), (1, 1, 4000), (1, getattr(settings, "max_length", 64), bins))
    elif name == "input_features":
        places = within(settings, "max_source_positions") or 32
        spectrum = within(settings, "spec_size")
        yield from ((1, bins, 2 * places), (1, 64, bins), (1, bins, 3000))
        yield from ((1, 1, 4 * spectrum, within(settings, "num_mel_bins") or 64),) if spectrum else ()
    elif name == "hidden_states":
        yield 16, channels * (getattr(vision, "temporal_patch_size", None) or 1) * patch_size**2
        yield 1, 8, getattr(settings, "hidden_size", 32)
    elif name == "past_values":
        length = (getattr(settings, "context_length", None) or 8) + max(getattr(settings, "lags_sequence", None) or [0])
        yield from ((1, length), (1, length, getattr(settings, "num_input_channels", 1)))


FLOATING = (
    *("inputs_embeds", "pixel_values", "input_values", "input_features", "hidden_states", "pixel_values_videos"),
    "past_values",
)
"""The names of floating-point inputs, in the order in which they are tried."""


def examples(module: nn.Module) -> Iterator[tuple[nn.Module, str, dict[str, Any]]]:
    """Yield a function of a floating-point input, its name, and all inputs, the likeliest first.

    Args:
        module: the model.
    """
    takes = inspect.signature(module.forward).parameters
    filled = fillings(module)
    usual = {name for name, each in takes.items() if each.default is each.empty} | {"decoder_input_ids"}
    try:
        table = module.get_input_embeddings()
    except NotImplementedError:
        table = None
    if not isinstance(table, nn.Embedding):
        table = next((each for each in module.modules() if isinstance(each, nn.Embedding)), None)
    for every in (False, True):
        beside = {key: value for key, value in filled.items() if key in (takes if every else usual) and key in takes}
        for name in FLOATING:
            if name == "inputs_embeds" and name in takes and table is not None:
                rest = {key: value for key, value in beside.items() if key != "input_ids"}
                rest |= {"attention_mask": filled["attention_mask"]} if "attention_mask" in takes else {}
                rows = table(filled["input_ids"])
                if hasattr(rows, "detach"):
                    yield module, name, {name: rows.detach(), **rest}
            elif name in takes:
                for shape in shapes(module, name):
                    yield module, name, beside | {name: torch.randn(shape)}
        if table is not None and "input_ids" in takes:
            rest = {key: filled[key] for key in ("input_ids", "attention_mask") if key in takes} | beside
            yield (
                FromEmbeddings(module, table).eval(),
                "embeddings",
                {"embeddings": table(filled["input_ids"]).detach(), **rest},
            )


def small_models(model_type: str) -> Iterator[tuple[nn.Module, str, dict[str, Any]]]:
    """Yield a model in the mode for inference, the name of its floating-point input, and inputs that it takes.

    Args:
        model_type: the model type.

    Raises:
        Exception: the first one, where PyTorch computes nothing with any of these sizes and inputs.
    """
    failures: list[tuple[bool, Exception]] = []
    for sizes in LADDER:
        for architecture in CLASSES[model_type]:
            torch.manual_seed(0)
            try:
                settings = configuration_auto.CONFIG_MAPPING[model_type]
                config = settings(**small(settings, sizes))
                build = getattr(transformers, architecture)._from_config
                with torch.device("meta"):
                    count = sum(math.prod(each.shape) for each in build(config).parameters())
                if count > MOST:
                    raise ValueError(f"{count:,} parameters")
                module = build(config, attn_implementation="eager").eval()
            except Exception as error:
                failures.append((False, error))
                continue
            for part in (module.config, module.config.get_text_config()):
                part._experts_implementation = "batched_mm"
                part.use_cache = False
            for weight in module.parameters():
                if weight.ndim > 1 and not weight.any():  # a router's, whose choice would be a tie
                    nn.init.normal_(weight, std=0.02)
            for part in module.modules():
                if hasattr(part, "chunk_gated_delta_rule"):  # written out position by position
                    part.chunk_gated_delta_rule = partial(part.chunk_gated_delta_rule, chunk_size=8)
            works = False
            for example in examples(module):
                try:
                    with torch.no_grad():
                        example[0](**example[2])
                except Exception as error:
                    failures.append((True, error))
                    continue
                works = True
                yield example
            if works:
                return
    # The first of a model that was built, else the first.
    raise max(failures, key=lambda failure: failure[0], default=(False, ValueError("it has no floating-point input")))[
        1
    ]
