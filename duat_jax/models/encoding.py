"""Texts as token ids, by a model's tokenizer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from duat_jax.errors import InvalidInput, warn_caller
from duat_jax.models.chat import Message, encode_chat, reads_chats
from duat_jax.models.checkpoint.tokenizer import one_error

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def encode(tokenizer: "Tokenizer", text: str | Sequence[Message], what: str) -> list[int]:
    """Return a text's token ids, with a model's special tokens around them; a chat has those of its template."""
    # If the text begins with the token that the tokenizer puts before it, a warning says so.
    if isinstance(text, str) and reads_chats(tokenizer):
        text = [{"role": "user", "content": text}]
    if not isinstance(text, str):
        with one_error(f"the tokenizer can't split {what}", InvalidInput):
            return encode_chat(tokenizer, text, what)
    with one_error(f"the tokenizer can't split {what}", InvalidInput):
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        encoding = tokenizer.encode(text)
    if not plain:
        raise InvalidInput(f"{what} is empty: give at least one token")
    if encoding.special_tokens_mask[0] and encoding.ids[0] == plain[0]:
        warn_caller(
            f"{what} begins with {encoding.tokens[0]!r}, and the tokenizer puts another one before it: leave it out, or"
            " let the tokenizer add none (--no-special-tokens, add_special_tokens=False)"
        )
    return encoding.ids
