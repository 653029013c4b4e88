"""The ModernBERT family: configuration and tensor map of Hugging Face's `modernbert` checkpoints."""

import dataclasses
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config, Head
from duat_jax.models.families.decoder import FULL, LAYER_TYPES, SLIDING
from duat_jax.models.families.encoder import logits, refuse_decoders
from duat_jax.models.families.family import Family
from duat_jax.models.families.heads import classes
from duat_jax.models.families.rotary import Positions, parameters_of, read_rotary
from duat_jax.models.families.tensor_map import SIDE_BY_SIDE, Entry, in_layer, linear, norm, transposed
from duat_jax.nn.config import BlockConfig

POOLS = {"cls": "first", "mean": "mean"}


def _read_head(settings: Settings, vocab: int) -> Head:
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


def read_config(settings: Settings) -> Config:
    """Read the configuration of a ModernBERT checkpoint.

    Args:
        settings: its `config.json`.
    """
    refuse_decoders(settings)
    features, heads = settings.integer("hidden_size"), settings.divisor("num_attention_heads", "hidden_size")

    def rotary(kind: str, field: str, base: float) -> Positions:
        parameters = parameters_of(settings, kind)
        return read_rotary(settings, features // heads, base=base, base_field=field, parameters=parameters)

    epsilon = settings.number("norm_eps", 1e-5)
    # Redundant fields of the first checkpoints.
    settings.expect("layer_norm_eps", epsilon)
    settings.expect("position_embedding_type", "absolute")
    full = rotary(FULL, "global_rope_theta", 160_000.0)
    bias = settings.boolean("attention_bias", False)
    block = BlockConfig(
        arrangement="pre-norm",
        features=features,
        heads=heads,
        neurons=settings.integer("intermediate_size"),
        causal=False,
        attention_bias=bias,
        output_bias=bias,
        rotary=full.rotary,
        mlp="gated",
        mlp_bias=settings.boolean("mlp_bias", False),
        activation=settings.activation("hidden_activation", "gelu"),
        norm_bias=settings.boolean("norm_bias", False),
        epsilon=epsilon,
    )
    sliding = dataclasses.replace(
        block,
        window=settings.integer("local_attention", 128) // 2 + 1,
        rotary=rotary(SLIDING, "local_rope_theta", 10_000.0).rotary,
    )
    layers, period = settings.count("num_hidden_layers"), settings.integer("global_attn_every_n_layers", 3)
    usual = tuple(SLIDING if i % period else FULL for i in range(layers))
    first, *later = (
        block if kind == FULL else sliding for kind in settings.choices("layer_types", LAYER_TYPES, layers) or usual
    )
    vocab = settings.integer("vocab_size")
    return Config(
        family="modernbert",
        # The embeddings are normalised already.
        blocks=(dataclasses.replace(first, norm_1=False), *later),
        vocab=vocab,
        positions=full.longest,
        position_embedding=False,
        embedding_norm=True,
        head=_read_head(settings, vocab),
    )


def _layer(block: BlockConfig) -> list[Entry]:
    parts = [f"block.attention.{part}" for part in ("query", "key", "value")]
    together, bias = transposed(SIDE_BY_SIDE), block.norm_bias
    return [
        *(norm("layers.{i}.attn_norm", "block.norm_1", bias=bias) if block.norm_1 else []),
        *linear("layers.{i}.attn.Wqkv", *parts, transform=together, bias=block.attention_bias),
        *linear("layers.{i}.attn.Wo", "block.attention.output", bias=block.output_bias),
        *norm("layers.{i}.mlp_norm", "block.norm_2", bias=bias),
        *linear("layers.{i}.mlp.Wi", "block.mlp.input", "block.mlp.factor", transform=together, bias=block.mlp_bias),
        *linear("layers.{i}.mlp.Wo", "block.mlp.output", bias=block.mlp_bias),
    ]


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    head, bias = config.head, config.blocks[0].norm_bias
    prepared = [*linear("head.dense", "head.dense", bias=head.dense_bias), *norm("head.norm", "head.norm", bias=bias)]
    heads = {
        "masked token": [
            *prepared,
            *([] if head.tied else [Entry("decoder.weight", ("head.unembedding",))]),
            *([Entry("decoder.bias", ("head.bias",))] if head.bias else []),
        ],
        "classes": [*prepared, *logits("classifier.weight", "classifier.bias")],
        "hidden": [],
    }
    return [
        Entry("embeddings.tok_embeddings.weight", ("embedding.token",)),
        *norm("embeddings.norm", "embedding_norm", bias=bias),
        *(entry for i, block in enumerate(config.blocks) for entry in in_layer(i, _layer(block))),
        *norm("final_norm", "final_norm", bias=bias),
        *heads[head.kind],
    ]


FAMILY = Family(
    read_config,
    tensor_map,
    prefix="model.",
    heads=r"(head|decoder|classifier)\..*",
    layer=r"layers\.(\d{1,9})\.",
    ignored=r"layers\.\d+\.attn\.rotary_emb\.inv_freq",
    copies={"decoder.weight": "embeddings.tok_embeddings.weight"},
)
