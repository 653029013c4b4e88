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

from tests.parity.small_sizes import LADDER, small

TOKENS = 6
"""The length of a text."""
ANSWERS = ("logits", "last_hidden_state")
"""The names of the outputs of which one is explained."""
EACH = 3
"""The most inputs that are tried of a model."""
MOST = 400_000_000
"""The most parameters of a model."""
KINDS = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "CAUSAL_LM", "MASKED_LM", "IMAGE_TEXT_TO_TEXT", "CTC")
KINDS = (*(f"FOR_{kind}_" for kind in (*KINDS, "IMAGE_CLASSIFICATION")), "")
CLASSES: dict[str, list[str]] = {}
"""The classes that are tried of each model type: first those with logits of tokens."""
for kind in KINDS:
    for model_type, name in getattr(modeling_auto, f"MODEL_{kind}MAPPING_NAMES").items():
        CLASSES.setdefault(model_type, []).append(name if isinstance(name, str) else name[0])


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
    image = torch.randn(1, channels, height, width)
    past, axes = past_length(settings), getattr(settings, "num_time_features", 1)
    boxes = torch.zeros(1, TOKENS, 4, dtype=torch.long)
    return {
        "input_ids": text,
        "attention_mask": torch.ones_like(text),
        "decoder_input_ids": text[:, :3],
        "qformer_input_ids": text[:, :3],
        "bbox": boxes,
        "visual_feats": torch.randn(1, 3, getattr(settings, "visual_feat_dim", 1) or 1),
        "visual_pos": torch.rand(1, 3, 4),
        "pixel_values": image,
        "noise": torch.rand(1, 36),
        "image_attention_mask": torch.ones(1, TOKENS, 1),
        "image_embeds_position_mask": torch.tensor([[1, 1, 0, 0, 0, 0]]),
        "lang_ids": torch.zeros(1, dtype=torch.long),
        "task_inputs": torch.arange(getattr(settings, "task_seq_len", 1))[None],
        "target_sizes": torch.tensor([[6, 6]]),
        "past_time_features": torch.randn(1, past, axes),
        "past_observed_mask": torch.ones(1, past),
        "past_values_padding": torch.zeros(1, past, dtype=torch.long),
        "freq": torch.zeros(1, 1, dtype=torch.long),
        "future_values": torch.randn(1, 4),
        "future_time_features": torch.randn(1, 4, axes),
        "actions": torch.randn(1, TOKENS, getattr(settings, "act_dim", 1)),
        "rewards": torch.randn(1, TOKENS, 1),
        "returns_to_go": torch.randn(1, TOKENS, 1),
        "timesteps": torch.arange(TOKENS)[None],
        "grid_thw": grid,
        "image_grid_thw": grid,
        "merge_sizes": torch.tensor([1]),
        "spatial_shapes": torch.tensor([[3, 3]]),
        "pixel_attention_mask": torch.ones(1, 9, dtype=torch.long),
        "input_features_mask": torch.ones(1, 64, dtype=torch.long),
    }


def past_length(settings: Any) -> int:
    """Return how many past values a model of time series takes."""
    return (getattr(settings, "context_length", None) or 8) + max(getattr(settings, "lags_sequence", None) or [0])


def shapes(module: nn.Module, name: str) -> Iterator[tuple[int, ...]]:
    """Yield the shapes that an input may have.

    Args:
        module: the model.
        name: the name of a floating-point input.
    """
    settings = module.config
    vision = getattr(settings, "vision_config", None) or settings
    bins = within(settings, "num_mel_bins", "feature_size", "feature_projection_input_dim") or 80
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
        yield 16, channels * (getattr(vision, "temporal_patch_size", None) or 2) * patch_size**2
        yield 1, 2, channels, 2 * height, 2 * width
    elif name == "pixel_values_videos":
        yield 1, frames, channels, height, width
    elif name == "input_values":
        yield from ((1, 4000), (1, 1, 4000), (1, getattr(settings, "max_length", 64), bins))
    elif name == "input_features":
        places = within(settings, "max_source_positions") or 32
        spectrum = within(settings, "spec_size")
        yield from ((1, bins, 2 * places), (1, 64, bins), (1, bins, 3000), (1, 64, 128), (1, 64, 4 * bins))
        yield from ((1, 1, 4 * spectrum, within(settings, "num_mel_bins") or 64),) if spectrum else ()
    elif name == "hidden_states":
        yield 16, channels * (getattr(vision, "temporal_patch_size", None) or 1) * patch_size**2
        yield 1, 8, getattr(settings, "hidden_size", 32)
    elif name == "past_values":
        length = past_length(settings)
        yield from ((1, length), (1, length, getattr(settings, "num_input_channels", 1)))
    elif name == "latents":
        yield from ((1, within(settings, "hidden_size"), 8), (1, 8, within(settings, "hidden_size")))
    elif name == "states":
        yield 1, TOKENS, settings.state_dim


FLOATING = (
    *("inputs_embeds", "pixel_values", "input_values", "input_features", "hidden_states", "pixel_values_videos"),
    *("past_values", "latents", "states"),
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
    last = int(filled["input_ids"].max())
    if not hasattr(table, "weight"):
        tables = (each for each in module.modules() if isinstance(each, nn.Embedding))
        table = next((each for each in tables if each.num_embeddings > last), None)
    framed = filled | {"pixel_values": filled["pixel_values"][:, None]}
    for given, names in ((filled, usual), (filled, takes), (framed, takes)):
        beside = {key: value for key, value in given.items() if key in names and key in takes}
        for name in FLOATING:
            if name == "inputs_embeds" and name in takes and table is not None:
                rest = {key: value for key, value in beside.items() if key != "input_ids"}
                rest |= {"attention_mask": filled["attention_mask"]} if "attention_mask" in takes else {}
                rows = table(filled["input_ids"])
                rows = rows[0] if isinstance(rows, tuple) else rows
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


def settings_of(architecture: Any, config: Any) -> Any:
    """Return the settings that an architecture is built from: a decoder alone has those of the decoder."""
    kind = architecture.config_class
    inner = [each for each in vars(config).values() if isinstance(kind, type) and isinstance(each, kind)]
    return inner[0] if inner and not isinstance(config, kind) else config


def outputs(module: nn.Module, given: dict[str, Any]) -> Any:
    """Return a model's logits, its last states, or its first floating-point output.

    Args:
        module: the model.
        given: its inputs.
    """
    with torch.no_grad():
        found = module(**{name: each.clone() if hasattr(each, "clone") else each for name, each in given.items()})
    for answer in ANSWERS:
        if hasattr(found, "get") and found.get(answer) is not None:
            return found[answer]
    return next(
        each
        for each in torch.utils._pytree.tree_leaves(found)
        if hasattr(each, "dtype") and each.dtype.is_floating_point
    )


class NoDependence(ValueError):
    """A model's outputs don't depend on an input."""


def require_dependence(module: nn.Module, name: str, given: dict[str, Any]) -> None:
    """Raise where PyTorch doesn't compute a model's outputs, or they depend on an input by less than rounding.

    Args:
        module: the model.
        name: the name of the input.
        given: all inputs.
    """
    one, two = (outputs(module, given | {name: each}) for each in (given[name], torch.randn_like(given[name])))
    finite = one.isfinite() & two.isfinite()
    if not (one - two)[finite].abs().max() > 1e-6 * one[finite].abs().max():
        raise NoDependence(f"its outputs don't depend on {name}")


def small_models(model_type: str) -> Iterator[tuple[nn.Module, str, dict[str, Any]]]:
    """Yield a model in the mode for inference, the name of its floating-point input, and inputs that it takes.

    Args:
        model_type: the model type.

    Raises:
        Exception: the first one, where PyTorch computes nothing with any of these sizes and inputs.
    """
    failures: list[tuple[int, Exception]] = []
    for sizes, inherits in LADDER:
        for architecture in CLASSES[model_type]:
            torch.manual_seed(0)
            try:
                settings = configuration_auto.CONFIG_MAPPING[model_type]
                build = getattr(transformers, architecture)._from_config
                config = settings_of(build.__self__, settings(**small(settings, sizes, inherits)))
                with torch.device("meta"):
                    count = sum(math.prod(each.shape) for each in build(config).parameters())
                if count > MOST:
                    raise ValueError(f"{count:,} parameters")
                module = build(config, attn_implementation="eager").eval()
            except Exception as error:
                failures.append((0, error))
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
            worked = False
            for drawn in (False, True):
                if drawn:  # matrices that keep sizes: those of training's first step let inputs vanish and choices tie
                    for weight in module.parameters():
                        if weight.ndim > 1:
                            nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
                works, vanishes = 0, False
                for example in examples(module):
                    if works == EACH:
                        break
                    try:
                        require_dependence(*example)
                    except Exception as error:
                        vanishes |= isinstance(error, NoDependence)
                        failures.append((2 if isinstance(error, NoDependence) else 1, error))
                        continue
                    works += 1
                    yield example
                worked |= works > 0
                if not works and not vanishes:
                    break
            if worked:
                return
    # The first of a model that computes something, else of one that was built, else the first.
    failures.append((-1, ValueError("it has no floating-point input")))
    raise max(failures, key=lambda failure: failure[0])[1]
