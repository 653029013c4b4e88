"""The spelling of a vocabulary: how its names of tokens write texts."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from duat_jax.models.vocabulary.token_bytes import CHARACTERS, bytes_of, fallback_byte, from_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MARK = "▁"
"""SentencePiece's character for a space."""

PLAIN = {chr(code) for code in range(33, 127)} | {"Ġ", "Ċ", "ĉ", "č"}
"""The characters of names that byte-level tokenizers' users know: ASCII, and those of white space."""


class Spelling(NamedTuple):
    """The spelling of a vocabulary.

    Args:
        byte_level: whether each character of a name stands for a byte.
        mark: the character of a space, if it has one.
        fallback: whether names such as `<0x0A>` stand for a byte.
    """

    byte_level: bool
    mark: str | None
    fallback: bool

    def data(self, name: str, added: bool) -> bytes:
        """Return the bytes of a token's text."""
        if self.byte_level:
            return (None if added else bytes_of(name)) or name.encode()
        byte = fallback_byte(name) if self.fallback and not added else None
        return (name.replace(self.mark, " ") if self.mark else name).encode() if byte is None else byte

    def names(self, text: str) -> Iterator[str]:
        """Yield the names that a token with a text may have, the first of them before the others."""
        yield text
        if self.byte_level:
            for data in (text.encode(), from_text(text)):
                yield "".join(CHARACTERS[byte] for byte in data)
        if self.mark:
            yield text.replace(" ", self.mark)
        if self.fallback and len(byte := from_text(text)) == 1:
            yield f"<0x{byte[0]:02X}>"

    def is_name(self, name: str) -> bool:
        """Return whether a text is read as a token's name where it is no token's text."""
        # Byte-level names of other characters look like other texts: `é` is the name of the byte `<E9>`.
        return not self.byte_level or set(name) <= PLAIN


def spelling_of(tokenizer: "Tokenizer") -> Spelling:
    """Return the spelling of a tokenizer's vocabulary, from what it does to a text's characters.

    Example:
        >>> import duat_jax as duat
        >>> spelling_of(duat.load_tokenizer())
        Spelling(byte_level=True, mark=None, fallback=False)
    """
    steps = [
        step
        for part in (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder)
        if part is not None
        for step in _steps(json.loads(part.__getstate__()))
    ]
    kinds = {step.get("type") for step in steps}
    marks = [step["replacement"] for step in steps if step.get("type") == "Metaspace"]
    marks += [MARK for step in steps if step.get("type") == "Replace" and MARK in json.dumps(step, ensure_ascii=False)]
    fallback = "ByteFallback" in kinds or bool(getattr(tokenizer.model, "byte_fallback", False))
    return Spelling("ByteLevel" in kinds, marks[0] if marks else None, fallback)


def _steps(state: Any) -> Iterator[dict[str, Any]]:
    """Yield every step within a part of a tokenizer."""
    if isinstance(state, dict):
        yield state
    for inner in state.values() if isinstance(state, dict) else state if isinstance(state, list) else ():
        yield from _steps(inner)
