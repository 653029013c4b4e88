"""ModernBERT: an encoder with rotary positions, gates and local windows."""

import dataclasses
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config, Head
from duat_jax.models.families.decoder import FULL, LAYER_TYPES, SLIDING, biases, flag
from duat_jax.models.families.encoder import DECODERS
from duat_jax.models.families.heads import classes
from duat_jax.models.families.names import GATE_AND_FACTOR, QUERY_KEY_VALUE, Names
from duat_jax.models.families.reader import read_config
from duat_jax.models.families.rotary import Positions, parameters_of, read_rotary

POOLS = {"cls": "first", "mean": "mean"}


def _read_head(settings: Settings, vocab: int, _: str) -> Head:
    """Read the head, whose dense layer and norm have an activation and biases of their own."""
    activation = settings.activation("classifier_activation", "gelu")
    prepared: dict[str, Any] = {
        "dense": activation,
        "dense_bias": settings.boolean("classifier_bias", False),
        "norm": True,
    }
    tied, bias = settings.boolean("tie_word_embeddings", True), settings.boolean("decoder_bias", True)
    pool = POOLS[settings.choice("classifier_pooling", POOLS, "cls")]
    match settings.head(("masked token", "classes", "hidden"), "hidden"):
        case "masked token":
            return Head(kind="masked token", outputs=vocab, tied=tied, bias=bias, **prepared)
        case "classes":
            return classes(settings, pool, bias=True, **prepared)
    return Head()


def _rotary(settings: Settings, head_features: int) -> Positions:
    """Read the rotary positions of layers with full attention."""
    parameters = parameters_of(settings, FULL)
    return read_rotary(settings, head_features, base=160_000.0, base_field="global_rope_theta", parameters=parameters)


def _local(settings: Settings, config: Config) -> Config:
    """Give most layers windows and rotary positions of their own; the embeddings are normalised already."""
    block = config.blocks[0]
    settings.expect("layer_norm_eps", block.epsilon)  # a redundant field of the first checkpoints
    local = read_rotary(
        settings,
        block.head_features or 1,
        base_field="local_rope_theta",
        parameters=parameters_of(settings, SLIDING),
    )
    window = settings.integer("local_attention", 128) // 2 + 1
    sliding = dataclasses.replace(block, window=window, rotary=local.rotary)
    layers, period = config.layers, settings.integer("global_attn_every_n_layers", 3)
    usual = tuple(SLIDING if i % period else FULL for i in range(layers))
    kinds = settings.choices("layer_types", LAYER_TYPES, layers) or usual
    first, *later = (block if kind == FULL else sliding for kind in kinds)
    return dataclasses.replace(config, blocks=(dataclasses.replace(first, norm_1=False), *later))


def _read_config(settings: Settings) -> Config:
    """Read the configuration of a ModernBERT checkpoint."""
    return read_config(
        settings,
        "modernbert",
        read_head=_read_head,
        activation=("hidden_activation", "gelu"),
        epsilon=("norm_eps", 1e-5),
        expect={"position_embedding_type": "absolute", **DECODERS},
        rotary=_rotary,
        outside={"embedding_norm": True},
        adjust=_local,
        arrangement="pre-norm",
        causal=False,
        **biases(),
        mlp="gated",
        mlp_bias=flag("mlp_bias"),
        norm_bias=flag("norm_bias"),
    )


PREPARED = {"dense": "head.dense", "norm": "head.norm"}
NAMES = Names(
    parts={
        "norm_1": "attn_norm",
        QUERY_KEY_VALUE: "attn.Wqkv",
        "attention.output": "attn.Wo",
        "norm_2": "mlp_norm",
        GATE_AND_FACTOR: "mlp.Wi",
        "mlp.output": "mlp.Wo",
    },
    outside={
        "embedding.token": "embeddings.tok_embeddings",
        "embedding_norm": "embeddings.norm",
        "final_norm": "final_norm",
    },
    heads={
        "masked token": {**PREPARED, "logits": "decoder"},
        "classes": {**PREPARED, "logits": "classifier"},
    },
)

FAMILIES = {
    "modernbert": NAMES.family(
        _read_config,
        prefix="model.",
        heads=r"(head|decoder|classifier)\..*",
        ignored=r"layers\.\d+\.attn\.rotary_emb\.inv_freq",
    )
}
