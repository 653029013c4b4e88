"""The bytes of tokens that are no whole characters."""

import codecs
import re

PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
"""The bytes that byte-level tokenizers write as themselves; the others are written as further characters, in order."""

BYTES = {chr(byte): byte for byte in PRINTABLE} | {
    chr(256 + i): byte for i, byte in enumerate(sorted(set(range(256)) - set(PRINTABLE)))
}
"""Of each character of a byte-level tokenizer's names, the byte."""


def bytes_of(name: str) -> bytes | None:
    r"""Return the bytes that a token stands for, or `None` if its name doesn't say them.

    Args:
        name: the token's name, in the characters of byte-level tokenizers, or `<0xE8>`.

    Example:
        >>> bytes_of("è"), bytes_of("<0xE8>"), bytes_of("日")
        (b'\xe8', b'\xe8', None)
    """
    if fallback := re.fullmatch(r"<0x([0-9A-F]{2})>", name):
        return bytes.fromhex(fallback[1])
    return bytes(BYTES[character] for character in name) if all(character in BYTES for character in name) else None


def as_text(data: bytes) -> str:
    r"""Return bytes as text; those that are no characters by their numbers.

    Args:
        data: the bytes.

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


def is_begun(data: bytes) -> bool:
    r"""Return whether bytes end within a character.

    Args:
        data: the bytes.

    Example:
        >>> is_begun("你".encode()[:2]), is_begun("你".encode()), is_begun(b"\xff")
        (True, False, False)
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    decoder.decode(data)
    return decoder.getstate()[0] != b""
