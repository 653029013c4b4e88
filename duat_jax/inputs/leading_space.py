"""A sentence for a token that is given without the leading space with which it is another token."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from duat_jax.errors import InvalidInput
from duat_jax.inputs.labels import Prediction
from duat_jax.models.config import Config
from duat_jax.models.vocabulary.vocabulary import find_token

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENS = "next token", "masked token"
"""The read-outs whose outputs are tokens."""


def space_notes(
    config: Config,
    tokenizer: "Tokenizer | None",
    tokens: Mapping[str, str | None],
    predictions: Iterable[Prediction] = (),
) -> list[str]:
    """Return a sentence for each word that is another token with a leading space, unless it is more probable."""
    if tokenizer is None or config.head.kind not in TOKENS:
        return []
    probable = {prediction.token: prediction.probability for prediction in predictions}

    def note(option: str, text: str) -> str:
        spaced = f" {text}"
        try:
            same = find_token(tokenizer, text, "") == find_token(tokenizer, spaced, "")
        except InvalidInput:  # one of them is no token
            return ""
        if same or probable.get(text, 0.0) > probable.get(spaced, 0.0):
            return ""
        here = f", {probable[spaced]:.1%} probable here" if spaced in probable else ""
        return f"{option} {text!r} has no leading space; with one, {spaced!r} is another token{here}."

    return list(filter(None, (note(option, text) for option, text in tokens.items() if text and text[0].isalnum())))
