"""Configuration and tensor names of BERT-like encoders."""

from collections.abc import Sequence

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config, Head
from duat_jax.models.families.heads import classes
from duat_jax.models.families.tensor_map import Entry, linear, norm
from duat_jax.nn.config import BlockConfig

POSITION_IDS = r"embeddings\.position_ids"
"""The position numbers, which some checkpoints store."""


def refuse_decoders(settings: Settings) -> None:
    """Note a problem for an encoder that is configured as a decoder, or with pruned heads.

    Args:
        settings: the checkpoint's `config.json`.
    """
    for name in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        settings.expect(name, False)
    settings.expect("pruned_heads", {})


def read_head(settings: Settings, vocab: int, *, masked: str, pooled: str) -> Head:
    """Read the head of an encoder: a masked token's logits, classes read at the first token, or none.

    Args:
        settings: the checkpoint's `config.json`.
        vocab: number of tokens.
        masked: the activation of the dense layer before a masked token's logits.
        pooled: that of the dense layer before classes.
    """
    tied = settings.boolean("tie_word_embeddings", True)
    match settings.head(("masked token", "classes", "hidden"), "hidden"):
        case "masked token":
            return Head(kind="masked token", outputs=vocab, tied=tied, bias=True, dense=masked, norm=True)
        case "classes":
            return classes(settings, "first", bias=True, dense=pooled)
    return Head()


def read_config(settings: Settings, family: str, *, activation: str = "gelu", masked: str | None = None) -> Config:
    """Read the configuration of a BERT-like encoder.

    Args:
        settings: the checkpoint's `config.json`.
        family: its family.
        activation: the value of an absent `hidden_act`.
        masked: the activation before a masked token's logits; that of the blocks if absent.
    """
    refuse_decoders(settings)
    settings.expect("position_embedding_type", "absolute")
    block = BlockConfig(
        arrangement="post-norm",
        features=settings.integer("hidden_size"),
        heads=settings.divisor("num_attention_heads", "hidden_size"),
        neurons=settings.integer("intermediate_size"),
        activation=settings.activation("hidden_act", activation),
        causal=False,
        epsilon=settings.number("layer_norm_eps", 1e-12),
    )
    vocab = settings.integer("vocab_size")
    return Config(
        family=family,
        blocks=(block,) * settings.count("num_hidden_layers"),
        vocab=vocab,
        positions=settings.integer("max_position_embeddings"),
        segments=settings.integer("type_vocab_size", 2),
        embedding_norm=True,
        final_norm=False,
        head=read_head(settings, vocab, masked=masked or block.activation, pooled="tanh"),
    )


EMBEDDINGS = [
    Entry("embeddings.word_embeddings.weight", ("embedding.token",)),
    Entry("embeddings.position_embeddings.weight", ("embedding.position",)),
    Entry("embeddings.token_type_embeddings.weight", ("embedding.segment",)),
    *norm("embeddings.LayerNorm", "embedding_norm"),
]

BLOCK = [
    *linear("encoder.layer.{i}.attention.self.query", "block.attention.query"),
    *linear("encoder.layer.{i}.attention.self.key", "block.attention.key"),
    *linear("encoder.layer.{i}.attention.self.value", "block.attention.value"),
    *linear("encoder.layer.{i}.attention.output.dense", "block.attention.output"),
    *norm("encoder.layer.{i}.attention.output.LayerNorm", "block.norm_1"),
    *linear("encoder.layer.{i}.intermediate.dense", "block.mlp.input"),
    *linear("encoder.layer.{i}.output.dense", "block.mlp.output"),
    *norm("encoder.layer.{i}.output.LayerNorm", "block.norm_2"),
]


def logits(weight: str, bias: str) -> list[Entry]:
    """Return the entries of a separate unembedding and of its bias.

    Args:
        weight: its stored name.
        bias: that of the bias.
    """
    return [Entry(weight, ("head.unembedding",)), Entry(bias, ("head.bias",))]


def masked_token_tensors(config: Config, prepared: Sequence[Entry], decoder: str, bias: str) -> list[Entry]:
    """Return the entries of the head of a masked language model.

    A tied head has a bias of its own and repeats it as the decoder's; an untied head uses the decoder's.

    Args:
        config: the checkpoint's parts.
        prepared: the entries of the dense layer and the norm.
        decoder: the stored name of the linear layer that reads the logits.
        bias: that of the bias of a tied one.
    """
    own = [Entry(bias, ("head.bias",))] if config.head.tied else logits(f"{decoder}.weight", f"{decoder}.bias")
    return [*prepared, *own]
