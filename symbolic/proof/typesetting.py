"""Typeset derivations as LaTeX documents: definitions, a theorem, and its proof in numbered equations."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import groupby

from symbolic.expressions.latex import escaped
from symbolic.expressions.parameter import latin
from symbolic.proof.derivation import ROOM, Derivation, equation_rows, explanation, sentence
from symbolic.proof.hypotheses import Condition, in_latex
from symbolic.proof.legend import letters_section
from symbolic.proof.line_breaks import width
from symbolic.proof.step import Step

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


_PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[a4paper,margin=25mm]{geometry}
\usepackage{amsmath}
\usepackage{amssymb}
\usepackage{amsthm}
\usepackage{graphicx}
\usepackage{longtable}
\newtheorem*{theorem}{Theorem}
\allowdisplaybreaks
\raggedbottom
\emergencystretch=3em
\setcounter{MaxMatrixCols}{40}
\begin{document}
"""

_EVIDENT = ("", "definition", "read off")  # rules that say no more than the equation
_MATRIX = re.compile(r"\\left\(\\begin\{matrix\}.*?\\end\{matrix\}\\right\)", re.DOTALL)


def _fitted(row: str) -> str:
    """Return a row with its explicit matrices made small enough for a line."""

    def smaller(match: re.Match) -> str:
        room = ROOM - 80
        return rf"\resizebox{{{room}pt}}{{!}}{{$\displaystyle {match[0]}$}}" if width(match[0]) > room else match[0]

    return _MATRIX.sub(smaller, row)


def _label(place: int, number: int) -> str:
    return f"equation:{place}.{number}"


def _display(steps: Sequence[Step], place: int, first: int) -> str:
    """Return equations that stand together, each with a number."""
    equations = []
    for number, step in enumerate(steps, first):
        *rows, last = map(_fitted, equation_rows(step))
        numbered = rf"{last} \label{{{_label(place, number)}}}"
        equations.append(" \\\\\n".join([*(rf"{row} \notag" for row in rows), numbered]))
    return "\\begin{align}\n" + " \\\\\n".join(equations) + "\n\\end{align}\n"


def _sentence(rule: str) -> str:
    text = escaped(rule)
    return f"{text[:1].upper()}{text[1:]}:" if text[:1].isalpha() else f"{text}:"


def _equations(steps: Sequence[Step], place: int, first: int) -> str:
    """Return equations in a row, with the rule of neighbours that have the same before them."""
    parts, number = [], first
    for rule, group in groupby(steps, key=lambda step: "" if step.rule in _EVIDENT else explanation(step)):
        together = list(group)
        parts.append((f"{_sentence(rule)}\n" if rule else "") + _display(together, place, number))
        number += len(together)
    return "".join(parts)


def _references(numbers: Sequence[int], place: int) -> str:
    """Return references to equations, those in a row as a range."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])

    def reference(number: int) -> str:
        return rf"\eqref{{{_label(place, number)}}}"

    return ", ".join(
        reference(run[0]) if len(run) == 1 else f"{reference(run[0])}--{reference(run[-1])}" for run in runs
    )


def _premises(derivation: Derivation) -> str:
    """Return the hypotheses as sentences of a paragraph."""
    sentences = [*map(sentence, derivation.hypotheses), *filter(None, [escaped(derivation.source)])]
    return " ".join(sentences) + "\n\n" if sentences else ""


def _theorem(derivation: Derivation, place: int) -> str:
    """Return the statement: hypotheses, the equations of an induction, and the numbers of those that are proved."""
    numbered = list(enumerate(derivation.steps, len(derivation.given) + 1))
    assumed = [number for number, step in numbered if step.assumed]
    statement = _premises(derivation)
    if assumed:
        statement += f"Assume {_references(assumed, place)}. "
    if derivation.inductions:
        rows = " \\\\\n".join(_fitted(row) for step in derivation.inductions for row in equation_rows(step))
        statement += f"For every $i \\ge 0$,\n\\begin{{align*}}\n{rows}\n\\end{{align*}}\n"
    checked: dict[tuple[Condition, ...], list[int]] = {}
    for (number, step), conditions in zip(numbered, derivation.conditions, strict=True):
        if step.proved and step.relation != ":=":
            checked.setdefault(conditions, []).append(number)
    claims = []
    for conditions, numbers in sorted(checked.items(), key=lambda item: len(item[0])):
        where = f"Where {in_latex(conditions)}, equation" if conditions else "Equation"
        verb = "s {} hold" if len(numbers) > 1 else " {} holds"
        claims.append(where + verb.format(_references(numbers, place)))
    return f"\\begin{{theorem}}[{{{escaped(derivation.title)}}}]\n{statement}{'. '.join(claims)}.\n\\end{{theorem}}\n"


def section(derivation: Derivation, place: int = 1) -> str:
    """Return a derivation as a section of a LaTeX document: definitions, theorem, and proof in numbered equations."""
    remark = "\n\\medskip\\noindent " + escaped(derivation.remark) + "\n" if derivation.remark else ""
    first = len(derivation.given)
    given = "\\noindent Let\n" + _equations(derivation.given, place, 1) if first else ""
    body = _equations(derivation.lines[first:], place, first + 1)
    verdict = f"\\emph{{{derivation.verdict}.}}\n"
    if derivation.proved:
        body = f"{_theorem(derivation, place)}\\begin{{proof}}\n{body}{verdict}\\end{{proof}}\n"
    else:
        body = f"{_premises(derivation)}{body}\\noindent{verdict}"
    return f"\\section*{{{escaped(derivation.title)}}}\n{given}{body}{remark}"


def document(sections: Iterable[str]) -> str:
    """Return a complete LaTeX file."""
    text = compilable("\n".join(sections))
    return f"{_PREAMBLE}{text}\n\\end{{document}}\n"


def article(*derivations: Derivation) -> str:
    """Return a LaTeX file that stands alone: the letters that occur, and derivations with what they rest on."""
    return document([letters_section(*derivations), *map(section, derivations, range(1, len(derivations) + 1))])
