"""Texts with their white space and control characters visible, and read back."""

import re

SIGNS = {code: chr(0x2400 + code) for code in range(32)} | {ord("\n"): "⏎", ord("\t"): "⇥"}
"""The signs of control characters, which a terminal would obey."""

SPACE = "·"
"""The sign of a space at the beginning or the end of a token."""

CHARACTERS = {sign: chr(code) for code, sign in SIGNS.items()}

HIDDEN = re.compile(r"<U\+([0-9A-F]{4,6})>")
"""A character that isn't visible and has no sign, by its number."""


def visible(text: str, *, spaces: bool = False, signs: bool = True) -> str:
    r"""Return a text with every character visible.

    Example:
        >>> visible(" a\n", spaces=True), visible("\n\u200b", signs=False)
        ('·a⏎', '<U+000A><U+200B>')
    """
    inner = text.strip(" ") if spaces else text
    begins = len(text) - len(text.lstrip(" ")) if inner else len(text)
    ends = len(text) - begins - len(inner)
    space = SPACE if signs else _sign(" ", signs=False)
    middle = "".join(each if each.isprintable() else _sign(each, signs=signs) for each in inner)
    return space * begins + middle + space * ends if spaces else middle


def _sign(character: str, *, signs: bool) -> str:
    """Return the sign of a character, or what writes its number."""
    number = f"<U+{ord(character):04X}>"
    return SIGNS.get(ord(character), number) if signs else number


def read_visible(text: str) -> str:
    r"""Return the text that `visible` shows so.

    Example:
        >>> read_visible("·a⏎"), read_visible("<U+000A><U+200B>")
        (' a\n', '\n\u200b')
    """
    inner = text.strip(SPACE)
    begins = len(text) - len(text.lstrip(SPACE)) if inner else len(text)
    ends = len(text) - begins - len(inner)
    plain = "".join(CHARACTERS.get(character, character) for character in inner)
    return " " * begins + HIDDEN.sub(lambda number: chr(min(int(number[1], 16), 0x10FFFF)), plain) + " " * ends
