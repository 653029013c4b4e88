"""Write letters of all scripts in LaTeX that pdflatex compiles."""

import re
import unicodedata

_ACCENTS = {
    "GRAVE ACCENT": "`", "ACUTE ACCENT": "'", "CIRCUMFLEX ACCENT": "^", "TILDE": "~", "DIAERESIS": '"', "CARON": "v",
    "CEDILLA": "c", "BREVE": "u", "DOT ABOVE": ".", "DOUBLE ACUTE ACCENT": "H", "MACRON": "=", "RING ABOVE": "r",
}  # fmt: skip
_COMMANDS = {"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L"}
_SIGNS = {"–": "--", "—": "---", "’": "'", "‘": "`", "“": "``", "”": "''", "…": r"\ldots{}"}
_SMALL = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu"
_GREEK = f"{_SMALL} nu xi pi rho sigma tau upsilon phi chi psi omega"
_CAPITALS = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"  # the others look like Latin ones

_LETTERS = dict(zip("αβγδεζηθικλμνξπρστυφχψω", _GREEK.split(), strict=True))
_LETTERS |= dict(zip("ΓΔΘΛΞΠΣΥΦΨΩ", _CAPITALS.split(), strict=True))


def _command(character: str) -> str:
    """Return the LaTeX of one character: with its accent as a command, or its number where there is none."""
    if character in _SIGNS:
        return _SIGNS[character]
    if character in _COMMANDS:
        return rf"\text{{\{_COMMANDS[character]}}}"
    if character in _LETTERS:
        return rf"\ensuremath{{\{_LETTERS[character]}}}"
    base, *marks = list(unicodedata.normalize("NFD", character))
    accents = [_ACCENTS.get(unicodedata.name(mark, "").removeprefix("COMBINING ")) for mark in marks]
    if not base.isascii() or not accents or None in accents:
        return rf"\texttt{{U+{ord(character):04X}}}"
    letter = {"i": r"\i", "j": r"\j"}.get(base, base)
    for accent in accents:
        letter = rf"\{accent}{{{letter}}}"
    return rf"\text{{{letter}}}"


def compilable(latex: str) -> str:
    r"""Return LaTeX in ASCII: a character that pdflatex has no letter for is named by its number.

    Args:
        latex: LaTeX.

    Example:
        >>> print(compilable("größe λ 中"))
        gr\text{\"{o}}\text{\ss}e \ensuremath{\lambda} \texttt{U+4E2D}
    """
    return re.sub(r"[^\x00-\x7f]", lambda match: _command(match[0]), latex)
