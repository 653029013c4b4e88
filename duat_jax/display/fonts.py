"""Fonts of pictures: further ones for what Matplotlib's own lacks, and a warning of what no font has."""

from functools import cache

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font, get_font_names
from matplotlib.text import Text

from duat_jax.errors import warn_caller

FURTHER = (
    *(
        f"Noto Sans {name}"
        for name in ("CJK SC", "CJK JP", "CJK KR", "CJK TC", "Arabic", "Devanagari", "Hebrew", "Thai")
    ),
    *("Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Malgun Gothic"),
    *("Arial Unicode MS", "Noto Emoji", "Symbola", "Segoe UI Symbol", "Apple Symbols"),
)
"""Fonts that are used where they are installed: of scripts that Matplotlib's own font lacks, and of emoji."""


@cache
def families(own: str) -> list[str]:
    """Return the fonts of a text: the own one, and for characters that it lacks the installed further ones."""
    installed = set(get_font_names())
    return [own, *(name for name in FURTHER if name in installed)]


@cache
def _characters() -> frozenset[int]:
    fonts = {findfont(FontProperties(family=[name])) for own in ("sans-serif", "monospace") for name in families(own)}
    return frozenset(code for font in fonts for code in get_font(font).get_charmap())


def warn_of_missing(figure: Figure) -> None:
    """Warn of the characters of a picture that no installed font has, which are drawn as boxes."""
    written = {character for text in figure.findobj(Text) for character in text.get_text() if character.isprintable()}
    if missing := sorted(character for character in written if ord(character) not in _characters()):
        warn_caller(
            f"no installed font has {' '.join(missing[:8])}{' …' if len(missing) > 8 else ''}, which the picture shows"
            " as boxes: install a font with them, such as Noto Sans CJK or Noto Emoji"
        )
