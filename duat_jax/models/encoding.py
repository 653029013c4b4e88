"""Texts as token ids, by a model's tokenizer."""

from typing import TYPE_CHECKING

from duat_jax.errors import BadText
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.tokenizer import one_error

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHOWN_PIECES = 8
"""The largest number of pieces of a text that a message names."""


def encode(tokenizer: "Tokenizer", text: str, what: str) -> list[int]:
    """Return a text's token ids, with a model's special tokens around them.

    Args:
        tokenizer: the model's tokenizer.
        text: the text.
        what: what it is, for the message.

    Raises:
        BadText: if it has no tokens, or the tokenizer can't split it.
    """
    with one_error(f"the tokenizer can't split {what}", BadText):
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        ids = tokenizer.encode(text).ids
    if not plain:
        raise BadText(f"{what} is empty: give at least one token")
    return ids


def encode_token(tokenizer: "Tokenizer", text: str, what: str) -> int:
    """Return the token id of a text that is one token, or a token's name.

    Args:
        tokenizer: the model's tokenizer.
        text: the text.
        what: what it is, for the message.

    Raises:
        BadText: if it is neither.
    """
    with one_error(f"the tokenizer can't split the {what}", BadText):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        unknown = getattr(tokenizer.model, "unk_token", None)
        is_unknown = ids == [tokenizer.token_to_id(unknown or "")] and text.strip() != unknown
        if len(ids) == 1 and not is_unknown:
            return ids[0]
        if (token := tokenizer.token_to_id(text)) is not None:
            return token
        pieces = ", ".join(repr(tokenizer.decode([i])) for i in ids[:SHOWN_PIECES]) or "nothing"
    if is_unknown:
        raise BadText(f"the {what} {quoted(text)} is no token: it would be read as the unknown one, {unknown!r}")
    more = ", …" if len(ids) > SHOWN_PIECES else ""
    raise BadText(
        f"the {what} {quoted(text)} is not one token but {len(ids)} ({pieces}{more}): give one of its tokens, and mind"
        " that a leading space belongs to a token"
    )
