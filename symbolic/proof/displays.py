r"""Typeset equations that stand together in a theorem, with their numbers, so that every line fits."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sympy import MatrixBase

from symbolic.expressions.latex import escaped, typeset
from symbolic.proof.derivation import LEFT, equation_rows
from symbolic.proof.hypotheses import listed
from symbolic.proof.line_breaks import fits, width
from symbolic.proof.step import Equation, Step

LINE = 345.0
"""The width of a line in points: that of LaTeX's `article` in one column, at a type size of 10."""

NARROWEST = 200.0
"""The width in points below which equations can't be broken into lines that fit."""

_NUMBER, _GAP, _END = 24.0, 12.0, 3.0  # points: of an equation's number, between two definitions, of a comma

_ALIKE = 0.15  # of a line: left sides that are aligned differ by no more

ENDLESS = 1e6  # points

_NEW_ROW = " \\\\\n"

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
        ordered = list(dict.fromkeys(self.labels.values()))
        labels = list(dict.fromkeys(self.labels[chain] for chain in chains))
        numbers, places = [rf"\eqref{{{label}}}" for label in labels], list(map(ordered.index, labels))
        if len(labels) > 2 and places == list(range(places[0], places[0] + len(places))):
            return f"{numbers[0]}--{numbers[-1]}"
        return listed(numbers)

    def reason(self, step: Step, words: str) -> str:
        """Return words on a step as LaTeX, with the numbers of the recursions or definitions that it used for them."""
        used = [c for c in self.labels if any(Equation(d.left, d.right) in step.using for d in c if d.relation == ":=")]
        return CITING.sub(lambda match: self.references(used) if used else match[0], self.prose(words))

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
    return step.rule.partition(", for ")[2].replace("≤", r"\le").replace("≥", r"\ge")


def rows_of(chain: Chain, room: float) -> list[str]:
    """Return the rows of an equation; an explicit matrix isn't broken, but made small enough."""
    rows: list[str] = []
    for step in chain:
        ranged = (step.relation == ":=" or step.by_induction) and range_of(step)
        where = rf"\quad ({range_of(step)})" if ranged else ""
        line = room - _END - (_left(chain, room) if step.left is None else 0.0) - width(where)
        whole = equation_rows(step, ENDLESS if isinstance(step.right, MatrixBase) else line)
        *first, last = [_fitted(row, line) for row in whole]
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
    alike = widest - min(lefts) <= _ALIKE * place.line and (len(chains) == 1 or min(lefts) > 0)
    equations = []
    for chain, room, left in zip(chains, rooms, lefts, strict=True):
        *rows, last = rows_of(chain, room - (widest - left if alike else 0.0))
        last += "." if chain is chains[-1] else ","
        end = rf" \label{{{place.labels[chain]}}}" if chain in place.labels else r" \notag"
        if len(chains) == 1 and not rows:
            return _environment("equation", [last.replace("&", "") + end])
        if alike:
            equations += [*(rf"{row} \notag" for row in rows), last + end]
        else:
            equations.append("\\begin{aligned}\n" + _NEW_ROW.join([*rows, last]) + "\n\\end{aligned}" + end)
    return _environment("align" if alike else "gather", equations)


def _environment(name: str, rows: Sequence[str]) -> str:
    """Return rows in an environment; without a number if none has one."""
    star = "" if any(r"\label" in row for row in rows) else "*"
    text = _NEW_ROW.join(row.replace(r" \notag", "") if star else row for row in rows)
    return f"\\begin{{{name}{star}}}\n{text}\n\\end{{{name}{star}}}\n"


def definitions(chains: Sequence[Chain], place: Place, common: str = "") -> str:
    """Return definitions, as many in a line as fit, with one number for all, and with ranges but for the common one."""
    label, room = place.labels.get(chains[0]), place.line - _END
    rows: list[list[str]] = []

    def in_a_row(*texts: str) -> bool:
        return not any(r"\begin" in text for text in texts) and fits(r", \quad ".join(texts), room)

    for chain in chains:
        texts = []
        for step in reversed(chain):  # an initial value, and then its recursion
            here = replace(step, rule="") if range_of(step) == common else step
            right = typeset(here.right).replace(r"\sum", r"\mathop{\textstyle\sum}\nolimits")
            text = f"{typeset(here.left)} := {right}" + (rf"\ ({range_of(here)})" if range_of(here) else "")
            if isinstance(here.right, MatrixBase) or not in_a_row(text):
                text = "\\begin{aligned}\n" + _NEW_ROW.join(rows_of((here,), place.line - _NUMBER))
            texts.append(text)
        together = in_a_row(*texts)
        for text in [r", \quad ".join(texts)] if together else texts:
            if row := next((row for row in (rows if together else rows[-1:]) if in_a_row(*row, text)), None):
                row.append(text)
            else:
                rows.append([text])
    ends = [r", \notag"] * (len(rows) - 1) + [rf". \label{{{label}}}" if label else "."]
    lines = [
        r", \quad ".join(row) + (end[0] + "\n\\end{aligned}" if row[0].startswith(r"\begin") else end[0]) + end[1:]
        for row, end in zip(rows, ends, strict=True)
    ]
    return _environment("gather", lines)
