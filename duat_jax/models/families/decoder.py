"""Configuration and tensor names of decoders like Llama, and the families that differ from it in a few lines."""

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config, Head
from duat_jax.models.families.family import Family
from duat_jax.models.families.heads import HEADS, of_decoder
from duat_jax.models.families.names import Names, Parts
from duat_jax.models.families.reader import read_config as read_any
from duat_jax.models.families.rotary import Positions, read_rotary
from duat_jax.nn.config import BlockConfig

LOGITS = {"next token": {"logits": "lm_head"}, "classes": {"logits": "score"}}
"""The names of a decoder's heads."""

ATTENTION: Parts = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
}
MLP: Parts = {"mlp.input": "mlp.gate_proj", "mlp.factor": "mlp.up_proj", "mlp.output": "mlp.down_proj"}
NORMS: Parts = {"norm_1": "input_layernorm", "norm_2": "post_attention_layernorm"}
ONE_NORM: Parts = {("norm_1", "norm_2"): "input_layernorm"}
"""One norm before both attention and MLP."""
OUTPUT_NORMS: Parts = {
    "norm_1": "input_layernorm",
    "norm_2": "pre_feedforward_layernorm",
    "attention_norm": "post_attention_layernorm",
    "mlp_norm": "post_feedforward_layernorm",
}
"""Norms before attention and MLP, and of their outputs."""

LLAMA = Names(
    parts={**ATTENTION, **MLP, **NORMS}, outside={"embedding.token": "embed_tokens", "final_norm": "norm"}, heads=LOGITS
)

NAMES: dict[str, Any] = {
    "prefix": "model.",
    "heads": r"lm_head\.weight|score\.weight",
    "ignored": r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq|rotary_emb\.inv_freq",
}
"""Tensor names of Llama-like families, as arguments of `Family`."""

STORED = ("prefix", "ignored", "older", "modules", "tensor_map", "harmless", "wrapper")
"""Fields of `Family` that a row of `families` may have."""

FULL, SLIDING = LAYER_TYPES = ("full_attention", "sliding_attention")
"""The attention types of a layer: over all tokens, or over a window."""

Adjust = Callable[[Settings, Config], Config]


def read_config(
    settings: Settings,
    family: str,
    *,
    tied: bool = False,
    filler: int | None = None,
    heads: Collection[str] = HEADS,
    rotary: Callable[[Settings, int], Positions] | None = read_rotary,
    activation: tuple[str, str] | Callable[[Settings], str] = ("hidden_act", "silu"),
    epsilon: tuple[str, float] | float = ("rms_norm_eps", 1e-6),
    **differences: Any,
) -> Config:
    """Read the configuration of a decoder.

    Args:
        settings: the checkpoint's `config.json`.
        family: its family.
        tied: the value of an absent `tie_word_embeddings`.
        filler: the value of an absent `pad_token_id`.
        heads: the kinds of head that the family has.
        rotary: reads the rotary positions for a width of heads; positions are learned if absent.
        activation: the field of the activation, and its default; or its reader.
        epsilon: the field of the norms' epsilon, and its default; or the epsilon itself.
        **differences: further differences from Llama: fields of `BlockConfig`, and what
            `duat_jax.models.families.reader.read_config` takes.
    """

    def read_head(settings: Settings, vocab: int, _: str) -> Head:
        return of_decoder(settings, vocab, tied=tied, filler=filler, kinds=heads)

    usual: dict[str, Any] = {
        "arrangement": "pre-norm",
        "grouped": True,
        "attention_bias": False,
        "output_bias": False,
        "mlp": "gated",
        "mlp_bias": False,
        "norm": "rms",
    }
    return read_any(
        settings,
        family,
        read_head=read_head,
        rotary=rotary,
        activation=activation,
        epsilon=epsilon,
        **usual | differences,
    )


def family(model_type: str, *, names: Names = LLAMA, **row: Any) -> Family:
    """Return a family of decoders, by its differences from Llama.

    Args:
        model_type: its name.
        names: the names of its tensors.
        **row: what `read_config` takes, and fields of `Family` that say how tensors are called.
    """
    stored = {field: row.pop(field) for field in STORED if field in row}
    biased = "next token" if "bias" in row.get("read_out", {}) else None
    heads = "|".join(
        re.escape(named["logits"]) + (r"\.(weight|bias)" if kind == biased else r"\.weight")
        for kind, named in names.heads.items()
    )
    return names.family(partial(read_config, family=model_type, **row), **NAMES | {"heads": heads} | stored)


def families(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Family]:
    """Return families of decoders by their `model_type`.

    Args:
        rows: of each what `family` takes.
    """
    return {model_type: family(model_type, **row) for model_type, row in rows.items()}


def flag(name: str, default: bool = False) -> Callable[[Settings], bool]:
    """Return the reader of a truth value.

    Args:
        name: the field.
        default: the value of an absent field.
    """
    return lambda settings: settings.boolean(name, default)


def biases(name: str = "attention_bias", default: bool = False) -> dict[str, Any]:
    """Return the readers of whether all parts of attention have biases.

    Args:
        name: the field.
        default: the value of an absent field.
    """
    return dict.fromkeys(("attention_bias", "output_bias"), flag(name, default))


def window(default: int | None = None) -> Callable[[Settings], int | None]:
    """Return the reader of the window of all layers.

    Args:
        default: the value of an absent `sliding_window`.
    """
    return lambda settings: settings.optional("sliding_window", default)


def with_blocks(config: Config, **fields: tuple[Any, ...]) -> Config:
    """Return a configuration with other values of some fields in each block.

    Args:
        config: the configuration.
        **fields: a field of `BlockConfig`, and its value in every layer.
    """
    columns = [dict(zip(fields, values, strict=True)) for values in zip(*fields.values(), strict=True)]
    blocks = tuple(dataclasses.replace(b, **v) for b, v in zip(config.blocks, columns, strict=True))
    return dataclasses.replace(config, blocks=blocks)


def with_windows(settings: Settings, config: Config, window: int | None, slides: Callable[[int], bool]) -> Config:
    """Return a configuration with windowed attention in some layers.

    Args:
        settings: the checkpoint's `config.json`.
        config: the configuration.
        window: the size of the window in tokens.
        slides: whether a layer has a window, if `layer_types` is absent.
    """
    kinds = settings.choices("layer_types", LAYER_TYPES, config.layers)
    if kinds is None:
        kinds = tuple(SLIDING if slides(i) else FULL for i in range(config.layers))
    if window is None and SLIDING in kinds:
        settings.problems.append(f"a layer is of {SLIDING}, but there is no window")
    return with_blocks(config, window=tuple(window if kind == SLIDING else None for kind in kinds))


def with_rotary_where(config: Config, turned: Callable[[int, BlockConfig], bool]) -> Config:
    """Return a configuration with rotary positions in some layers alone.

    Args:
        config: the configuration.
        turned: whether a layer has them.
    """
    rotary = tuple(block.rotary if turned(i, block) else None for i, block in enumerate(config.blocks))
    return with_blocks(config, rotary=rotary)


def with_local_rotary(config: Config, local: Positions) -> Config:
    """Return a configuration with other rotary positions in layers with a window.

    Args:
        config: the configuration.
        local: their rotary positions.
    """
    rotary = tuple(block.rotary if block.window is None else local.rotary for block in config.blocks)
    return with_blocks(config, rotary=rotary)
