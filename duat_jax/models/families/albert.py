"""The ALBERT family: configuration and tensor map of Hugging Face's `albert` checkpoints, whose layers are shared."""

import dataclasses
from collections.abc import Iterator

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import encoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.tensor_map import SHARED, TRANSPOSED, Entry, linear, norm, transposed


def read_config(settings: Settings) -> Config:
    """Read the configuration of an ALBERT checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("inner_group_num", 1)
    config = encoder.read_config(settings, "albert", activation="gelu_new")
    groups = settings.integer("num_hidden_groups", 1)
    if groups > config.layers:
        settings.problems.append(f"num_hidden_groups = {groups} is more than num_hidden_layers = {config.layers}")
    return dataclasses.replace(
        config,
        embedding_features=settings.integer("embedding_size", 128),
        groups=tuple(int(i / (config.layers / groups)) for i in range(config.layers)),
    )


BLOCK = [
    *linear("attention.query", "attention.query"),
    *linear("attention.key", "attention.key"),
    *linear("attention.value", "attention.value"),
    *linear("attention.dense", "attention.output"),
    *norm("attention.LayerNorm", "norm_1"),
    *linear("ffn", "mlp.input"),
    *linear("ffn_output", "mlp.output"),
    *norm("full_layer_layer_norm", "norm_2"),
]
PREPARED = [*linear("predictions.dense", "head.dense"), *norm("predictions.LayerNorm", "head.norm")]


def _in_every_layer(config: Config) -> Iterator[Entry]:
    """Yield the entries of all groups of layers."""
    for group in sorted(set(config.groups)):
        layers = [i for i, shared in enumerate(config.groups) if shared == group]
        for entry in BLOCK:
            names = tuple(f"encoder.albert_layer_groups.{group}.albert_layers.0.{name}" for name in entry.names)
            paths = tuple(f"stack.blocks.{i}.{path}" for i in layers for path in entry.parameters)
            yield Entry(names, paths, transposed(SHARED) if entry.transform is TRANSPOSED else SHARED)


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    heads = {
        "masked token": encoder.masked_token_tensors(config, PREPARED, "predictions.decoder", "predictions.bias"),
        "classes": [*linear("pooler", "head.dense"), *encoder.logits("classifier.weight", "classifier.bias")],
        "hidden": [],
    }
    return [
        *encoder.EMBEDDINGS,
        *linear("encoder.embedding_hidden_mapping_in", "projection"),
        *_in_every_layer(config),
        *heads[config.head.kind],
    ]


FAMILY = Family(
    read_config,
    tensor_map,
    prefix="albert.",
    heads=r"(predictions|classifier|sop_classifier)\..*",
    layer=r"encoder\.albert_layer_groups\.(\d{1,9})\.",
    ignored=rf"{encoder.POSITION_IDS}|pooler\..*",
    copies={
        "predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
)
