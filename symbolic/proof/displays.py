r"""Typeset equations that stand together in a theorem, with their numbers, so that every line fits."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sympy import MatrixBase

from symbolic.expressions.latex import escaped, typeset
from symbolic.proof.derivation import LEFT, equation_rows
from symbolic.proof.hypotheses import listed
from symbolic.proof.line_breaks import width
from symbolic.proof.step import Equation, Step

LINE = 345.0
"""The width of a line in points: that of LaTeX's `article` in one column, at a type size of 10."""

NARROWEST = 200.0
"""The width in points below which equations can't be broken into lines that fit."""

_NUMBER, _GAP, _END = 30.0, 12.0, 4.0  # points: of an equation's number, between two definitions, of a comma

_ALIKE = 0.15  # of a line: left sides that are aligned differ by no more

ENDLESS = 1e6  # points

_MATRIX = re.compile(r"\\left\(\\begin\{matrix\}.*?\\end\{matrix\}\\right\)", re.DOTALL)

CITING = re.compile(r"\bthe (?:recursions|definitions)\b")

_LETTER = re.compile(r"(?<![\\a-zA-Z{_^,])(?:\\[a-zA-Z]+|[a-zA-Z])'*(?![a-zA-Z])")

Chain = tuple[Step, ...]
"""An equation with the lines that continue it."""


class Place(NamedTuple):
    """The width of a line in points, the labels of the equations that have a number, and the letters of matrices."""

    line: float
    labels: Mapping[Chain, str]
    bold: Mapping[str, str]

    def references(self, chains: Sequence[Chain]) -> str:
        """Return references to equations, those in a row as a range."""
        labels = [rf"\eqref{{{self.labels[chain]}}}" for chain in chains]
        ordered = list(self.labels)
        places = [ordered.index(chain) for chain in chains]
        if len(chains) > 2 and places == list(range(places[0], places[0] + len(places))):
            return f"{labels[0]}--{labels[-1]}"
        return listed(labels)

    def reason(self, step: Step, words: str) -> str:
        """Return words on a step as LaTeX, with the numbers of the recursions or definitions that it used."""
        used = [
            c for c in self.labels if any(d.relation == ":=" and Equation(d.left, d.right) in step.using for d in c)
        ]
        numbers = f" {self.references(used)}" if used else ""
        return CITING.sub(lambda match: match[0][: -1 if len(used) == 1 else None] + numbers, self.prose(words))

    def prose(self, words: str) -> str:
        """Return words as LaTeX, with the letters in them as equations have them."""
        text = escaped(words).replace("$ = $", " = ").replace(r"$ $\le $ $", r" \le ")
        text = re.sub(r"\$ = (\d+)", r" = \1$", text).replace("Eq. ", "Eq.~")
        return re.sub(r"\$[^$]*\$", lambda formula: _LETTER.sub(self._letter, formula[0]), text)

    def _letter(self, match: re.Match) -> str:
        return self.bold.get(match[0], match[0])


def chained(steps: Iterable[Step]) -> list[Chain]:
    """Return equations, each with the lines that continue it."""
    chains: list[Chain] = []
    for step in steps:
        chains = [*chains[:-1], (*chains[-1], step)] if step.left is None and chains else [*chains, (step,)]
    return chains


def _fitted(row: str, room: float) -> str:
    """Return a row with its explicit matrices made small enough for a line."""
    rest = room - _GAP - width(_MATRIX.sub("", row).replace("&", ""))

    def smaller(match: re.Match) -> str:
        matrix = match[0]
        return rf"\resizebox{{{rest:.0f}pt}}{{!}}{{$\displaystyle {matrix}$}}" if width(matrix) > rest else matrix

    return _MATRIX.sub(smaller, row)


def range_of(step: Step) -> str:
    """Return the range of the indices of a step, such as `j ≤ i`, as LaTeX; nothing if its rule names none."""
    return step.rule.partition(", for ")[2].replace("≤", r"\le")


def rows_of(chain: Chain, room: float) -> list[str]:
    """Return the rows of an equation; an explicit matrix isn't broken, but made small enough."""
    rows: list[str] = []
    for step in chain:
        ranged = (step.relation == ":=" or step.by_induction) and range_of(step)
        where = rf"\quad ({range_of(step)})" if ranged else ""
        line = room - _END - (_left(chain, room) if step.left is None else 0.0) - width(where)
        whole = equation_rows(step, ENDLESS if isinstance(step.right, MatrixBase) else line)
        *first, last = [_fitted(row, line) for row in whole]
        beside = f", \\quad {last.replace('&', '')}{where}"
        if len(chain) > 1 and step is chain[-1] and step.relation == ":=":  # an initial value, beside its recursion
            fits = not first and width((rows[-1] + beside).replace("&", "")) <= room - _END
            rows = [*rows[:-1], rows[-1] + beside] if fits else [*rows[:-1], f"{rows[-1]},", *first, last + where]
        else:
            rows += [*first, last + where]
    return rows


def _left(chain: Chain, room: float) -> float:
    """Return the width of an equation's left side, if it stands beside the right one."""
    own = width(typeset(chain[0].left))
    return own if own <= LEFT * (room - _END) else 0.0


def display(chains: Sequence[Chain], place: Place) -> str:
    """Return equations that stand together, with the numbers that they have, aligned if their left sides are alike."""
    rooms = [place.line - (_NUMBER if chain in place.labels else 0.0) for chain in chains]
    lefts = list(map(_left, chains, rooms))
    widest = max(lefts)
    alike = widest - min(lefts) <= _ALIKE * place.line
    equations = []
    for chain, room, left in zip(chains, rooms, lefts, strict=True):
        *rows, last = rows_of(chain, room - (widest - left if alike else 0.0))
        last += "." if chain is chains[-1] else ","
        end = rf" \label{{{place.labels[chain]}}}" if chain in place.labels else r" \notag"
        if alike:
            equations.append(" \\\\\n".join([*(rf"{row} \notag" for row in rows), last + end]))
        else:
            equations.append("\\begin{aligned}\n" + " \\\\\n".join([*rows, last]) + "\n\\end{aligned}" + end)
    name = "align" if alike else "gather"
    return f"\\begin{{{name}}}\n" + " \\\\\n".join(equations) + f"\n\\end{{{name}}}\n"


def definitions(steps: Iterable[Step], line: float) -> str:
    """Return definitions, as many in a line as fit."""
    rows: list[list[str]] = []
    used = line
    for step in steps:
        text = f"{typeset(step.left)} := {typeset(step.right)}"
        text += rf"\ ({range_of(step)})" if range_of(step) else ""
        size = width(text) + _END
        if size > line or isinstance(step.right, MatrixBase):
            text, size = "\\begin{aligned}\n" + " \\\\\n".join(rows_of((step,), line)), line
        fits = used + _GAP + size <= line
        rows = [*rows[:-1], [*rows[-1], text]] if fits else [*rows, [text]]
        used = used + _GAP + size if fits else size
    ends = [*[","] * (len(rows) - 1), "."]
    closed = [
        r", \quad ".join(row) + end + ("\n\\end{aligned}" if row[0].startswith(r"\begin{aligned}") else "")
        for row, end in zip(rows, ends, strict=True)
    ]
    return "\\begin{gather*}\n" + " \\\\\n".join(closed) + "\n\\end{gather*}\n"
