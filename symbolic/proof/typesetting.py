"""Typeset derivations as LaTeX: a fragment for a paper, or a complete document."""

import re
import unicodedata
from collections.abc import Iterable

from symbolic.expressions.parameter import latin
from symbolic.proof.derivation import Derivation
from symbolic.proof.displays import LINE
from symbolic.proof.theorem import stated_in, theorem

_ACCENTS = {
    "GRAVE ACCENT": "`", "ACUTE ACCENT": "'", "CIRCUMFLEX ACCENT": "^", "TILDE": "~", "DIAERESIS": '"', "CARON": "v",
    "CEDILLA": "c", "BREVE": "u", "DOT ABOVE": ".", "DOUBLE ACUTE ACCENT": "H", "MACRON": "=", "RING ABOVE": "r",
}  # fmt: skip
_COMMANDS = {"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L"}
_SIGNS = {"–": "--", "—": "---", "’": "'", "‘": "`", "“": "``", "”": "''", "…": r"\ldots{}"}


def _command(character: str) -> str:
    """Return the LaTeX of one character: with its accent as a command, or its number where there is none."""
    if character in _SIGNS:
        return _SIGNS[character]
    if character in _COMMANDS:
        return rf"\text{{\{_COMMANDS[character]}}}"
    if (name := latin(character)) != character:
        return rf"\ensuremath{{\{name}}}"
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

    Example:
        >>> print(compilable("größe λ 中"))
        gr\text{\"{o}}\text{\ss}e \ensuremath{\lambda} \texttt{U+4E2D}
    """
    return re.sub(r"[^\x00-\x7f]", lambda match: _command(match[0]), latex)


_DOCUMENT = r"""\documentclass[10pt,%s]{article}
\usepackage[a4paper,textwidth=%gpt,columnsep=%gpt,vmargin=25mm]{geometry}
\usepackage{amsmath,amssymb,amsthm,graphicx}
\newtheorem{theorem}{Theorem}
\setcounter{MaxMatrixCols}{40}
\begin{document}
%s
\end{document}
"""

_BETWEEN = 10.0  # points between columns

_FRAGMENT = r"""%% To be read by \input; needs amsmath, amssymb, amsthm%s, \newtheorem{theorem}{Theorem}; lines of %gpt.
\begingroup\sloppy\allowdisplaybreaks
%s\par\endgroup
%s"""


def document(sections: Iterable[str], line: float = LINE, columns: int = 1) -> str:
    """Return a complete LaTeX file with lines of a width in points, in one column or two."""
    layout = "onecolumn" if columns == 1 else "twocolumn"
    return compilable(_DOCUMENT % (layout, columns * line + (columns - 1) * _BETWEEN, _BETWEEN, "\n".join(sections)))


def fragment(*derivations: Derivation, line: float = LINE) -> str:
    r"""Return derivations as theorems with proofs, for `\input` into a paper with lines of a width in points.

    Example:
        >>> from symbolic.theorems.closed_form import prove
        >>> print(fragment(prove()).splitlines()[-1].rpartition("; ")[2])
        sizes that are symbols: d, n
    """
    stated = list(map(stated_in, derivations))
    theorems = [theorem(each, line, set().union(*stated[:number])) for number, each in enumerate(derivations)]
    text, _, verified = compilable("\n".join(theorems)).removesuffix("\n").rpartition("\n")
    needed = ", graphicx" if r"\resizebox" in text else ""
    return _FRAGMENT % (needed, line, f"{text}\n", f"{verified}\n")


def article(*derivations: Derivation, line: float = LINE) -> str:
    """Return a LaTeX file that stands alone: derivations with what they rest on."""
    return document([fragment(*derivations, line=line)], line)
