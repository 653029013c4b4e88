"""The bytes of tokens, which may be no whole characters."""

import re

PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
"""The bytes that byte-level tokenizers write as themselves; the others are written as further characters, in order."""

BYTES = {chr(byte): byte for byte in PRINTABLE} | {
    chr(256 + i): byte for i, byte in enumerate(sorted(set(range(256)) - set(PRINTABLE)))
}
"""Of each character of a byte-level tokenizer's names, the byte."""

CHARACTERS = {byte: character for character, byte in BYTES.items()}
"""Of each byte, the character by which byte-level tokenizers write it."""

PIECE = re.compile("<([89A-F][0-9A-F])>")
"""A byte that is no character, as `as_text` writes it."""


def bytes_of(name: str) -> bytes | None:
    r"""Return the bytes that a byte-level tokenizer's name of a token stands for, or `None` if it isn't such a name.

    Example:
        >>> bytes_of("Ġa"), bytes_of("è"), bytes_of("日")
        (b' a', b'\xe8', None)
    """
    return bytes(BYTES[character] for character in name) if all(character in BYTES for character in name) else None


def fallback_byte(name: str) -> bytes | None:
    r"""Return the byte that a name such as `<0xE8>` stands for, or `None` if it is no such name.

    Example:
        >>> fallback_byte("<0xE8>"), fallback_byte("a")
        (b'\xe8', None)
    """
    written = re.fullmatch(r"<0x([0-9A-F]{2})>", name)
    return bytes.fromhex(written[1]) if written else None


def from_text(text: str) -> bytes:
    r"""Return the bytes that `as_text` writes as a text.

    Example:
        >>> from_text(" a<E4><BD>")
        b' a\xe4\xbd'
    """
    parts = PIECE.split(text)
    return b"".join(bytes.fromhex(part) if i % 2 else part.encode() for i, part in enumerate(parts))


def as_text(data: bytes) -> str:
    r"""Return bytes as text; those that are no characters by their numbers.

    Example:
        >>> as_text(b" a\xe4\xbd"), as_text("你".encode())
        (' a<E4><BD>', '你')
    """
    text, start = "", 0
    while start < len(data):
        try:
            return text + data[start:].decode()
        except UnicodeDecodeError as error:
            wrong = data[start + error.start : start + error.end]
            text += data[start : start + error.start].decode() + "".join(f"<{byte:02X}>" for byte in wrong)
            start += error.end
    return text
