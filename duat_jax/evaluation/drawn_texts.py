"""Texts drawn from a list, long enough to take tokens away from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from duat_jax.errors import InvalidInput
from duat_jax.inputs.baselines import special_tokens
from duat_jax.models.config import Config
from duat_jax.models.encoding import encode

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FEWEST = 5
"""Minimum number of tokens of a text, special tokens not counted."""


def drawn_texts(
    config: Config, tokenizer: "Tokenizer", texts: Sequence[str], count: int, *, longest: int, seed: int = 0
) -> list[tuple[list[int], list[int] | None]]:
    """Draw texts as token ids, each with the text that follows it in the list if the model is a sentence encoder."""
    kind = config.head.kind
    if kind not in ("next token", "hidden"):
        raise InvalidInput(
            f"faithfulness is measured on language models and sentence encoders, and this model's head is {kind!r}:"
            " load one of these"
        )
    ids = [encode(tokenizer, text, f"text {i}") for i, text in enumerate(texts)]
    if kind == "next token":
        ids = [tokens[:longest] for tokens in ids]
    nothing = special_tokens(tokenizer)
    fits = [len(tokens) <= config.positions for tokens in ids]
    long_enough = [i for i, tokens in enumerate(ids) if fits[i] and (~np.isin(tokens, nothing)).sum() >= FEWEST]
    if kind == "hidden":  # the last text has no successor
        long_enough = [i for i in long_enough if i + 1 < len(ids) and fits[i + 1] and ids[i] != ids[i + 1]]
    if len(long_enough) < count:
        raise InvalidInput(
            f"there are {len(long_enough)} texts of at least {FEWEST} tokens that aren't special and at most"
            f" {config.positions} in all, and {count} are requested: give more texts, or request fewer"
        )
    drawn = np.random.default_rng(seed).permutation(long_enough)[:count].tolist()
    return [(ids[i], ids[i + 1] if kind == "hidden" else None) for i in drawn]
