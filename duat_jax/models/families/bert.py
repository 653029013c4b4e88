"""BERT and its relatives: RoBERTa, ELECTRA, DistilBERT and ALBERT, whose layers are shared."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families.encoder import BERT, family
from duat_jax.models.families.names import Names
from duat_jax.models.families.tensor_map import SHARED, TRANSPOSED, Entry, transposed

POOLER = r"pooler\..*"


def _after_padding(settings: Settings, config: Config) -> Config:
    """RoBERTa: positions are counted from the row after that of the padding token, which isn't counted."""
    padding = settings.integer("pad_token_id", 1, least=0)
    positions = config.positions - padding - 1
    if positions < 1:
        settings.problems.append(
            f"max_position_embeddings = {config.positions} leaves no place after pad_token_id = {padding}"
        )
    return dataclasses.replace(config, positions=positions, position_offset=padding + 1, uncounted=padding)


ROBERTA: dict[str, Any] = {
    "names": dataclasses.replace(
        BERT,
        heads={
            "masked token": {
                "dense": "lm_head.dense",
                "norm": "lm_head.layer_norm",
                "logits": "lm_head.decoder",
                "tied": "lm_head",
            },
            "classes": {"dense": "classifier.dense", "logits": "classifier.out_proj"},
        },
    ),
    "prefix": "roberta.",
    "heads": "lm_head|classifier",
    "ignored": POOLER,
    "masked": "gelu",
    "adjust": _after_padding,
}


def _projected(settings: Settings, config: Config) -> Config:
    """ELECTRA: embeddings of another width are projected."""
    width = settings.integer("embedding_size", 128)
    return dataclasses.replace(config, embedding_features=None if width == config.features else width)


def _shared(settings: Settings, config: Config) -> Config:
    """ALBERT: embeddings are projected, and layers share their parameters."""
    groups = settings.integer("num_hidden_groups", 1)
    if groups > config.layers:
        settings.problems.append(f"num_hidden_groups = {groups} is more than num_hidden_layers = {config.layers}")
    return dataclasses.replace(
        config,
        embedding_features=settings.integer("embedding_size", 128),
        groups=tuple(int(i / (config.layers / groups)) for i in range(config.layers)),
    )


ALBERT = BERT.but(
    {
        "attention.query": "attention.query",
        "attention.key": "attention.key",
        "attention.value": "attention.value",
        "attention.output": "attention.dense",
        "norm_1": "attention.LayerNorm",
        "mlp.input": "ffn",
        "mlp.output": "ffn_output",
        "norm_2": "full_layer_layer_norm",
    },
    outside={**BERT.outside, "projection": "encoder.embedding_hidden_mapping_in"},
    heads={
        "masked token": {
            "dense": "predictions.dense",
            "norm": "predictions.LayerNorm",
            "logits": "predictions.decoder",
            "tied": "predictions",
        },
        "classes": {"dense": "pooler", "logits": "classifier"},
    },
    layer="encoder.albert_layer_groups.{i}.albert_layers.0.",
)


def _albert_tensors(config: Config) -> list[Entry]:
    """Return ALBERT's table: a group of layers is stored once."""
    outside = dataclasses.replace(ALBERT, parts={}).tensor_map(config)
    return [*outside, *_in_every_layer(config)]


def _in_every_layer(config: Config) -> Iterator[Entry]:
    """Yield the entries of all groups of layers."""
    for group in sorted(set(config.groups)):
        layers = [i for i, shared in enumerate(config.groups) if shared == group]
        for entry in ALBERT.of_block(config.blocks[0]):
            names = tuple(name.format(i=group) for name in entry.names)
            paths = tuple(
                f"stack.blocks.{i}.{path.removeprefix('block.')}" for i in layers for path in entry.parameters
            )
            yield Entry(names, paths, transposed(SHARED) if entry.transform is TRANSPOSED else SHARED)


DISTILBERT = Names(
    layer="transformer.layer.{i}.",
    parts={
        "attention.query": "attention.q_lin",
        "attention.key": "attention.k_lin",
        "attention.value": "attention.v_lin",
        "attention.output": "attention.out_lin",
        "norm_1": "sa_layer_norm",
        "mlp.input": "ffn.lin1",
        "mlp.output": "ffn.lin2",
        "norm_2": "output_layer_norm",
    },
    outside=BERT.outside,
    heads={
        "masked token": {"dense": "vocab_transform", "norm": "vocab_layer_norm", "logits": "vocab_projector"},
        "classes": {"dense": "pre_classifier", "logits": "classifier"},
    },
)

FAMILIES = {
    "bert": family(
        "bert",
        heads="cls|classifier",
        ignored=POOLER,
        older={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
        expect={"directionality": "bidi"},
    ),
    **{name: family(name, **ROBERTA) for name in ("roberta", "xlm-roberta", "camembert")},
    "electra": family(
        "electra",
        names=dataclasses.replace(
            BERT,
            outside={**BERT.outside, "projection": "embeddings_project"},
            heads={
                "masked token": {
                    "dense": "generator_predictions.dense",
                    "norm": "generator_predictions.LayerNorm",
                    "logits": "generator_lm_head",
                },
                "classes": {"dense": "classifier.dense", "logits": "classifier.out_proj"},
            },
        ),
        heads="generator_predictions|generator_lm_head|discriminator_predictions|classifier",
        masked="gelu",
        pooled="gelu",
        adjust=_projected,
    ),
    "distilbert": family(
        "distilbert",
        names=DISTILBERT,
        heads="vocab_transform|vocab_layer_norm|vocab_projector|pre_classifier|classifier|qa_outputs",
        fields={
            "hidden_size": "dim",
            "num_attention_heads": "n_heads",
            "num_hidden_layers": "n_layers",
            "intermediate_size": "hidden_dim",
        },
        activation=("activation", "gelu"),
        pooled="relu",
        epsilon=1e-12,
        expect={"layer_norm_eps": 1e-12},
        outside={"segments": 0},
    ),
    "albert": family(
        "albert",
        names=ALBERT,
        heads="predictions|classifier|sop_classifier",
        ignored=POOLER,
        expect={"inner_group_num": 1},
        activation=("hidden_act", "gelu_new"),
        adjust=_shared,
        tensor_map=_albert_tensors,
    ),
}
