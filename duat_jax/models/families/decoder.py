"""Configuration and tensor names of Llama-like decoders."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families.heads import HEADS, of_decoder, unembedding
from duat_jax.models.families.rotary import Positions, read_rotary
from duat_jax.models.families.tensor_map import Entry, in_layer, linear, norm, stacked
from duat_jax.nn.config import BlockConfig

NAMES: dict[str, Any] = {
    "prefix": "model.",
    "heads": r"lm_head\.weight|score\.weight",
    "layer": r"layers\.(\d{1,9})\.",
    "ignored": r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq|rotary_emb\.inv_freq",
    "copies": {"lm_head.weight": "embed_tokens.weight"},
}
"""Tensor names of Llama-like families, as arguments of `Family`."""

FULL, SLIDING = LAYER_TYPES = ("full_attention", "sliding_attention")
"""The attention types of a layer: over all tokens, or over a window."""


def read_config(
    settings: Settings,
    family: str,
    *,
    tied: bool = False,
    rotary: Callable[[Settings, int], Positions] = read_rotary,
    activation: tuple[str, str] = ("hidden_act", "silu"),
    epsilon: tuple[str, float] = ("rms_norm_eps", 1e-6),
    key_value_heads: int | None = None,
    head_features: int | None = None,
    filler: int | None = None,
    heads: Collection[str] = HEADS,
    **parts: Any,
) -> Config:
    """Read the configuration of a decoder with equal layers.

    Args:
        settings: the checkpoint's `config.json`.
        family: its family.
        tied: the value of an absent `tie_word_embeddings`.
        rotary: reads the rotary positions for a width of heads.
        activation: the field of the activation, and its default.
        epsilon: the field of the norms' epsilon, and its default.
        key_value_heads: the value of an absent `num_key_value_heads`; as many as query heads if absent.
        head_features: the value of an absent `head_dim`; a head's share of the features if absent.
        filler: the value of an absent `pad_token_id`.
        heads: the kinds of head that the family has.
        **parts: the differences from Llama in each block, as fields of `BlockConfig`.
    """
    features, query_heads = settings.integer("hidden_size"), settings.integer("num_attention_heads")
    width = settings.integer("head_dim", head_features or max(features // query_heads, 1))
    positions = rotary(settings, width)
    vocab = settings.integer("vocab_size")
    usual: dict[str, Any] = {
        "arrangement": "pre-norm",
        "features": features,
        "heads": query_heads,
        "key_value_heads": settings.optional("num_key_value_heads", key_value_heads) or query_heads,
        "head_features": width,
        "rotary": positions.rotary,
        "attention_bias": False,
        "output_bias": False,
        "mlp": "gated",
        "mlp_bias": False,
        "activation": settings.activation(*activation),
        "norm": "rms",
        "epsilon": settings.number(*epsilon),
    }
    neurons = settings.per_layer("intermediate_size", settings.count("num_hidden_layers"))
    return Config(
        family=family,
        blocks=tuple(BlockConfig(**usual | {"neurons": count} | parts) for count in neurons),
        vocab=vocab,
        positions=positions.longest,
        position_embedding=False,
        head=of_decoder(settings, vocab, tied=tied, filler=filler, kinds=heads),
    )


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


def with_scaled_logits(config: Config, scale: float) -> Config:
    """Return a configuration with scaled logits.

    Args:
        config: the configuration.
        scale: the number.
    """
    if config.head.kind != "next token":
        return config
    return dataclasses.replace(config, head=dataclasses.replace(config.head, scale=scale))


def attention(block: BlockConfig, output: str = "o_proj") -> list[Entry]:
    """Return the entries of an attention whose parts are stored separately.

    Args:
        block: the layer's parts.
        output: the stored name of the output projection.
    """
    entries = [
        entry
        for stored, ours in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"))
        for entry in linear(f"layers.{{i}}.self_attn.{stored}", f"block.attention.{ours}", bias=block.attention_bias)
    ]
    entries += linear(f"layers.{{i}}.self_attn.{output}", "block.attention.output", bias=block.output_bias)
    if block.query_key_norm != "none":
        entries += norm("layers.{i}.self_attn.q_norm", "block.attention.query_norm", bias=False)
        entries += norm("layers.{i}.self_attn.k_norm", "block.attention.key_norm", bias=False)
    return entries


def gated_mlp(block: BlockConfig) -> list[Entry]:
    """Return the entries of a gated MLP whose parts are stored separately.

    Args:
        block: the layer's parts.
    """
    return [
        entry
        for stored, ours in (("gate_proj", "input"), ("up_proj", "factor"), ("down_proj", "output"))
        for entry in linear(f"layers.{{i}}.mlp.{stored}", f"block.mlp.{ours}", bias=block.mlp_bias)
    ]


def experts(block: BlockConfig, stored: str, gate: str, factor: str, output: str) -> list[Entry]:
    """Return the entries of separately stored experts, and of their router.

    Args:
        block: the layer's parts.
        stored: their stored name in a layer.
        gate: the stored name of an expert's gate.
        factor: the stored name of its factor.
        output: the stored name of its output.
    """
    count = block.experts or 0
    entries = linear(f"layers.{{i}}.{stored}.gate", "block.mlp.router", bias=False)
    for part, ours in ((gate, "input"), (factor, "factor"), (output, "output")):
        names = tuple(f"layers.{{i}}.{stored}.experts.{expert}.{part}.weight" for expert in range(count))
        entries.append(Entry(names, (f"block.mlp.{ours}",), stacked(count)))
    return entries


def norms(block: BlockConfig) -> list[Entry]:
    """Return the entries of the norms before attention and MLP, and of those on their outputs.

    Args:
        block: the layer's parts.
    """
    before = ("input_layernorm", "pre_feedforward_layernorm" if block.output_norms else "post_attention_layernorm")
    norms_by_part = {
        "norm_1": before[0] if block.norm_1 else None,
        "norm_2": before[1] if block.norm_2 else None,
        "attention_norm": "post_attention_layernorm" if block.output_norms else None,
        "mlp_norm": "post_feedforward_layernorm" if block.output_norms else None,
    }
    return [
        entry
        for ours, stored in norms_by_part.items()
        if stored is not None
        for entry in norm(f"layers.{{i}}.{stored}", f"block.{ours}", bias=_offset(block))
    ]


def shared_norm(block: BlockConfig) -> list[Entry]:
    """Return the entries of one norm before both attention and MLP.

    Args:
        block: the layer's parts.
    """
    return norm("layers.{i}.input_layernorm", "block.norm_1", "block.norm_2", bias=_offset(block))


def _offset(block: BlockConfig) -> bool:
    return block.norm == "layer" and block.norm_bias


def outside(config: Config, final: str = "norm") -> list[Entry]:
    """Return the entries outside the layers.

    Args:
        config: the checkpoint's parts.
        final: the stored name of the last norm.
    """
    return [
        Entry("embed_tokens.weight", ("embedding.token",)),
        *norm(final, "final_norm", bias=_offset(config.blocks[0])),
        *unembedding(config),
    ]


def layer(block: BlockConfig) -> list[Entry]:
    """Return the entries of a layer with a gated MLP.

    Args:
        block: its parts.
    """
    return [*attention(block), *gated_mlp(block), *norms(block)]


def tensor_map(config: Config, layer: Callable[[BlockConfig], list[Entry]] = layer, final: str = "norm") -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
        layer: the entries of a layer.
        final: the stored name of the last norm.
    """
    layers = [entry for i, block in enumerate(config.blocks) for entry in in_layer(i, layer(block))]
    return [*outside(config, final), *layers]
