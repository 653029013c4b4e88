"""A line for a token that is given without the leading space with which it is another token."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from duat_jax.errors import BadText

if TYPE_CHECKING:
    from rich.text import Text
    from tokenizers import Tokenizer

    from duat_jax.inputs.labels import Prediction


def space_lines(
    tokenizer: "Tokenizer | None", tokens: Mapping[str, str | None], predictions: "Iterable[Prediction]" = ()
) -> "list[Text]":
    """Return a line for each word that is another token with a leading space, unless it is the more probable of both.

    Args:
        tokenizer: the model's tokenizer; no lines without it.
        tokens: the texts of tokens, by the options that give them.
        predictions: what the model says there, as far as it is known.
    """
    from duat_jax.display.tables import note_lines
    from duat_jax.models.encoding import encode_token

    probable = {prediction.token: prediction.probability for prediction in predictions}

    def line(option: str, text: str) -> str:
        spaced = f" {text}"
        try:
            same = tokenizer is None or encode_token(tokenizer, text, "") == encode_token(tokenizer, spaced, "")
        except BadText:  # one of them is no token
            return ""
        if same or probable.get(text, 0.0) > probable.get(spaced, 0.0):
            return ""
        here = f", {probable[spaced]:.1%} probable here" if spaced in probable else ""
        return f"{option} {text!r} has no leading space; with one, {spaced!r} is another token{here}."

    lines = [line(option, text) for option, text in tokens.items() if text and text[0].isalnum()]
    return note_lines(filter(None, lines))
