"""Configuration and tensor names of encoders like BERT."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config, Head
from duat_jax.models.families.family import Family
from duat_jax.models.families.heads import classes
from duat_jax.models.families.names import Names
from duat_jax.models.families.reader import read_config as read_any

POSITION_IDS = r"embeddings\.position_ids"
"""The position numbers, which some checkpoints store."""

DECODERS = {"is_decoder": False, "add_cross_attention": False, "is_encoder_decoder": False, "pruned_heads": {}}
"""Fields of encoders that are configured as decoders, or with pruned heads, and their supported values."""

BERT = Names(
    layer="encoder.layer.{i}.",
    parts={
        "attention.query": "attention.self.query",
        "attention.key": "attention.self.key",
        "attention.value": "attention.self.value",
        "attention.output": "attention.output.dense",
        "norm_1": "attention.output.LayerNorm",
        "mlp.input": "intermediate.dense",
        "mlp.output": "output.dense",
        "norm_2": "output.LayerNorm",
    },
    outside={
        "embedding.token": "embeddings.word_embeddings",
        "embedding.position": "embeddings.position_embeddings",
        "embedding.segment": "embeddings.token_type_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
    },
    heads={
        "masked token": {
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "logits": "cls.predictions.decoder",
            "tied": "cls.predictions",
        },
        "classes": {"dense": "pooler.dense", "logits": "classifier"},
    },
)
"""The names of BERT, where a tied head repeats its own bias as that of the decoder."""


def head_reader(masked: str | None = None, pooled: str = "tanh") -> Callable[[Settings, int, str], Head]:
    """Return the reader of an encoder's head: a masked token's logits, classes read at the first token, or none.

    Args:
        masked: the activation of the dense layer before a masked token's logits; that of the blocks if absent.
        pooled: that of the dense layer before classes.
    """

    def read_head(settings: Settings, vocab: int, activation: str) -> Head:
        tied = settings.boolean("tie_word_embeddings", True)
        match settings.head(("masked token", "classes", "hidden"), "hidden"):
            case "masked token":
                dense = masked or activation
                return Head(kind="masked token", outputs=vocab, tied=tied, bias=True, dense=dense, norm=True)
            case "classes":
                return classes(settings, "first", bias=True, dense=pooled)
        return Head()

    return read_head


def read_config(
    settings: Settings,
    family: str,
    *,
    activation: tuple[str, str] = ("hidden_act", "gelu"),
    masked: str | None = None,
    pooled: str = "tanh",
    epsilon: tuple[str, float] | float = ("layer_norm_eps", 1e-12),
    expect: Mapping[str, Any] | None = None,
    outside: Mapping[str, Any] | None = None,
    **differences: Any,
) -> Config:
    """Read the configuration of an encoder.

    Args:
        settings: the checkpoint's `config.json`.
        family: its family.
        activation: the field of the activation, and its default.
        masked: the activation before a masked token's logits; that of the blocks if absent.
        pooled: that before classes.
        epsilon: the field of the norms' epsilon, and its default; or the epsilon itself.
        expect: further fields that change the computation, and their only supported value.
        outside: further fields of `Config`.
        **differences: further differences from BERT: fields of `BlockConfig`, and what
            `duat_jax.models.families.reader.read_config` takes.
    """
    segments = {"segments": lambda settings: settings.integer("type_vocab_size", 2)}
    usual: dict[str, Any] = {"arrangement": "post-norm", "causal": False}
    return read_any(
        settings,
        family,
        read_head=head_reader(masked, pooled),
        activation=activation,
        epsilon=epsilon,
        expect={"position_embedding_type": "absolute", **DECODERS, **(expect or {})},
        outside={**segments, "embedding_norm": True, "final_norm": False, **(outside or {})},
        **usual | differences,
    )


def family(model_type: str, *, heads: str, names: Names = BERT, ignored: str = "", **row: Any) -> Family:
    """Return a family of encoders, by its differences from BERT.

    Args:
        model_type: its name.
        heads: regular expression of the beginnings of its heads' names.
        names: the names of its tensors.
        ignored: regular expression of names that don't belong to the model, beside the position numbers.
        **row: what `read_config` takes, and fields of `Family` that say how tensors are called.
    """
    stored = {field: row.pop(field) for field in ("prefix", "older", "copies", "tensor_map") if field in row}
    return names.family(
        partial(read_config, family=model_type, **row),
        **{"prefix": f"{model_type}.", "heads": rf"({heads})\..*", "ignored": f"{POSITION_IDS}|{ignored}"} | stored,
    )
