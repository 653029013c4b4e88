"""The heads that many families share: how a configuration says them."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config, Head
from duat_jax.models.families.tensor_map import Entry


def next_token(settings: Settings, kind: str, vocab: int, *, tied: bool) -> Head:
    """Return the head of a decoder: the next token's logits, or none.

    Args:
        settings: the checkpoint's `config.json`.
        kind: `"next token"` or `"hidden"`.
        vocab: number of tokens.
        tied: what an absent `tie_word_embeddings` means.
    """
    tied = settings.boolean("tie_word_embeddings", tied)
    return Head(kind="next token", outputs=vocab, tied=tied) if kind == "next token" else Head()


def classes(
    settings: Settings, kind: str, pool: str, *, bias: bool = False, dense: str | None = None, dense_bias: bool = True
) -> Head:
    """Return the head of a classifier.

    Args:
        settings: the checkpoint's `config.json`.
        kind: `"classes"`.
        pool: which token they are read at.
        bias: whether the logits have a bias.
        dense: the activation of a dense layer before them.
        dense_bias: whether that layer has a bias.
    """
    settings.boolean("tie_word_embeddings", False)  # of the read-out that isn't there
    labels = settings.labels()
    return Head(kind=kind, outputs=len(labels), labels=labels, bias=bias, pool=pool, dense=dense, dense_bias=dense_bias)


def unembedding(config: Config, stored: str = "lm_head.weight") -> list[Entry]:
    """Return the entry of the matrix that reads a decoder's logits: none where it is tied, or where there are none.

    Args:
        config: the checkpoint's parts.
        stored: its name where it reads the next token's.
    """
    name = "score.weight" if config.head.kind == "classes" else stored
    return [Entry(name, ("head.unembedding",))] if config.head.outputs and not config.head.tied else []
