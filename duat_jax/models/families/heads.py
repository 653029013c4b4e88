"""Heads that many families share, read from a configuration."""

from collections.abc import Collection
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config, Head
from duat_jax.models.families.tensor_map import Entry

HEADS = ("next token", "classes", "hidden")
"""The kinds of head that most decoders have."""


def of_decoder(
    settings: Settings, vocab: int, *, tied: bool, filler: int | None = None, kinds: Collection[str] = HEADS
) -> Head:
    """Read the head of a decoder: the next token's logits, classes read at the last token, or none.

    Args:
        settings: the checkpoint's `config.json`.
        vocab: number of tokens.
        tied: the value of an absent `tie_word_embeddings`.
        filler: the value of an absent `pad_token_id`; null is no token.
        kinds: the kinds of head that the family has.
    """
    kind = settings.head(kinds, "next token")
    if kind == "classes":
        # An id that is no token, such as -1, pads nothing.
        filler = settings.values.get("pad_token_id", filler)
        is_token = isinstance(filler, int) and not isinstance(filler, bool) and 0 <= filler < vocab
        return classes(settings, "last", filler=filler if is_token else None)
    tied = settings.boolean("tie_word_embeddings", tied)
    return Head(kind=kind, outputs=vocab, tied=tied) if kind == "next token" else Head()


def classes(settings: Settings, pool: str, **parts: Any) -> Head:
    """Read the head of a classifier.

    Args:
        settings: the checkpoint's `config.json`.
        pool: the token at which they are read.
        **parts: further fields of `Head`.
    """
    settings.boolean("tie_word_embeddings", False)  # it refers to an absent read-out
    labels = settings.labels()
    return Head(kind="classes", outputs=len(labels), labels=labels, pool=pool, **parts)


def unembedding(config: Config, stored: str = "lm_head.weight") -> list[Entry]:
    """Return the entry of a decoder's unembedding; empty if it is tied or absent."""
    name = "score.weight" if config.head.kind == "classes" else stored
    return [Entry(name, ("head.unembedding",))] if config.head.outputs and not config.head.tied else []
