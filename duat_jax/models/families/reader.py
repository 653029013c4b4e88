"""Reading of the configuration of a Transformer whose layers are equal but for their sizes."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config, Head
from duat_jax.models.families.rotary import Positions
from duat_jax.nn.config import BlockConfig

SIZES = ("hidden_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers")
"""The fields that every checkpoint may give by these names, and some by others."""

NOTHING: dict[str, Any] = {}


def read_config(
    settings: Settings,
    family: str,
    *,
    read_head: Callable[[Settings, int, str], Head],
    activation: tuple[str, str] | Callable[[Settings], str],
    epsilon: tuple[str, float] | float,
    fields: Mapping[str, str] = NOTHING,
    renamed: Mapping[str, str] = NOTHING,
    expect: Mapping[str, Any] = NOTHING,
    rotary: Callable[[Settings, int], Positions] | None = None,
    grouped: bool = False,
    key_value_heads: int | Callable[[Settings], int | None] | None = None,
    head_features: int | None = None,
    widening: int | None = None,
    outside: Mapping[str, Any] = NOTHING,
    read_out: Mapping[str, Any] = NOTHING,
    adjust: Callable[[Settings, Config], Config] | None = None,
    **parts: Any,
) -> Config:
    """Read the configuration of a Transformer.

    Any field of a configuration may also be given as a function that reads it from the settings.

    Args:
        settings: the checkpoint's `config.json`.
        family: its family.
        read_head: reads the head, given the number of tokens and the activation.
        activation: the field of the activation, and its default; or its reader.
        epsilon: the field of the norms' epsilon, and its default; the epsilon itself where there is no field.
        fields: the family's names of fields that have another one elsewhere.
        renamed: other names of fields, and those that are read.
        expect: fields that change the computation, and their only supported value.
        rotary: reads the rotary positions for a width of heads; positions are learned if absent.
        grouped: whether the heads' width and the number of key/value heads are fields.
        key_value_heads: the value of an absent `num_key_value_heads`, or the reader of their number; as many as query
            heads if absent.
        head_features: the value of an absent `head_dim`; a head's share of the features if absent.
        widening: the number of neurons for each feature where `intermediate_size` is absent; it is required if absent.
        outside: fields of `Config`.
        read_out: fields of `Head` where it reads the next token.
        adjust: changes what differs from layer to layer.
        **parts: fields of `BlockConfig`.
    """

    def name(field: str) -> str:
        return fields.get(field, field)

    def values(given: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value(settings) if callable(value) else value for key, value in given.items()}

    sizes = {field: name(field) for field in SIZES if name(field) != field}
    for other, read in {**sizes, **renamed}.items():
        settings.rename(other, read)
    for field, value in expect.items():
        settings.expect(field, value)
    features = settings.integer(name("hidden_size"))
    if grouped:
        heads = settings.integer(name("num_attention_heads"))
        width = settings.integer("head_dim", head_features or max(features // heads, 1))
    else:
        heads = settings.divisor(name("num_attention_heads"), name("hidden_size"))
        width = max(features // heads, 1)
    if callable(key_value_heads):
        shared = key_value_heads(settings)
    else:
        shared = settings.optional("num_key_value_heads", key_value_heads) if grouped else None
    longest, turned = settings.integer(name("max_position_embeddings")), None
    if rotary is not None:
        turned, longest = rotary(settings, width)
    block = {
        "features": features,
        "heads": heads,
        "key_value_heads": shared or heads,
        "head_features": width,
        "rotary": turned,
        "activation": activation(settings) if callable(activation) else settings.activation(*activation),
        "epsilon": settings.number(*epsilon) if isinstance(epsilon, tuple) else epsilon,
        **values(parts),
    }
    default = None if widening is None else widening * features
    neurons = settings.per_layer(name("intermediate_size"), settings.count(name("num_hidden_layers")), default)
    vocab = settings.integer("vocab_size")
    head, of_tokens = read_head(settings, vocab, block["activation"]), values(read_out)
    if head.kind == "next token":
        head = dataclasses.replace(head, **of_tokens)
    whole: dict[str, Any] = {
        "family": family,
        "blocks": tuple(BlockConfig(**block | {"neurons": count}) for count in neurons),
        "vocab": vocab,
        "positions": longest,
        "position_embedding": rotary is None,
        "head": head,
        **values(outside),
    }
    config = Config(**whole)
    config = config if adjust is None else adjust(settings, config)
    if grouped or callable(key_value_heads):
        return config
    # What no field says stays absent: kept work names a configuration by its hash.
    blocks = (dataclasses.replace(block, key_value_heads=shared, head_features=None) for block in config.blocks)
    return dataclasses.replace(config, blocks=tuple(blocks))
