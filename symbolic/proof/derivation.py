"""Represent a derivation: equations, each with its rule and whether the normal form confirms it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sympy import MatrixExpr, sstr

from symbolic.expressions.latex import escaped, typeset
from symbolic.expressions.parameter import Parameter, parameters_replaced
from symbolic.proof.line_breaks import broken, width
from symbolic.proof.step import Step

ROOM = 415.0
"""The width of a formula in points, beside its number on a page of A4."""

_LEFT = 0.35  # of the room, which a left side takes at most beside its right one

_ALIGNED = 24  # left sides up to this length are aligned in plain text

_RELATION, _INDENT = 13.0, 20.0  # points

_LATEX_RELATION = {"=": "=", ":=": ":=", "≤": r"\le", "<": "<", "≈": r"\approx"}


def equation_rows(step: Step) -> list[str]:
    """Return the rows of an equation, its relation behind an `&`.

    Args:
        step: the equation.
    """
    relation = _LATEX_RELATION[step.relation]
    if step.verified is False:
        relation = rf"\overset{{?}}{{{relation}}}"
    left, room, above = "" if step.left is None else typeset(step.left), ROOM - _RELATION, []
    if width(left) > _LEFT * ROOM:
        first, *following = broken(left, ROOM)
        above = [f"& {first}", *(rf"&\quad {line}" for line in following)]
        left = r"\qquad"
    first, *following = broken(typeset(step.right), room - width(left) - _INDENT)
    return [*above, f"{left} &{relation} {first}", *(rf"&\qquad {line}" for line in following)]


def _latex_lines(step: Step) -> list[str]:
    rows = equation_rows(step)
    return [*rows, rf"&\qquad\qquad \text{{{escaped(step.rule)}}}"] if step.rule else rows


_MARKS = {True: "✓", False: "✗", None: " "}


@dataclass(frozen=True)
class Derivation:
    """A list of steps with a title.

    Args:
        title: its title.
        steps: the equations, in order.
        remark: one sentence on what it says or assumes.
        given: definitions that the steps rest on, which a document states before them.
        words: the meanings of letters that the table of letters doesn't know.
    """

    title: str
    steps: tuple[Step, ...]
    remark: str = ""
    given: tuple[Step, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def verified(self) -> bool:
        """Whether every check holds."""
        return all(step.verified is not False for step in self.steps)

    @property
    def verdict(self) -> str:
        """The number of checks that hold, of definitions and of hypotheses, in words."""
        checks = [step.verified for step in self.steps if step.verified is not None]
        stated = [step.relation for step in self.steps if step.verified is None]
        definitions = stated.count(":=")
        counts = {"definition": definitions, "hypothesis": len(stated) - definitions}
        plural = {"definition": "definitions", "hypothesis": "hypotheses"}
        given = [f"{count} {name if count == 1 else plural[name]}" for name, count in counts.items() if count]
        return (
            f"{sum(checks)} of {len(checks)} checks hold"
            + (f", with {' and '.join(given)}" if given else "")
            + ("" if self.verified else ": NOT PROVED")
        )

    def with_parameters(self, put: Callable[[Parameter], MatrixExpr]) -> "Derivation":
        """Return the derivation with something else in the place of its parameters.

        Args:
            put: the replacement of a parameter.
        """

        def put_in(step: Step) -> Step:
            return replace(step, left=parameters_replaced(step.left, put), right=parameters_replaced(step.right, put))

        return replace(self, steps=tuple(map(put_in, self.steps)), given=tuple(map(put_in, self.given)))

    def rows(self) -> str:
        """Return the rows of an `aligned` environment: equations and, in a second column, their rules."""
        return " \\\\\n".join(line for step in self.steps for line in _latex_lines(step))

    def latex(self) -> str:
        """Return the steps as LaTeX for a formula: an `aligned` environment, with a `?` over what isn't verified."""
        return f"\\begin{{aligned}}\n{self.rows()}\n\\end{{aligned}}"

    def unicode(self) -> str:
        """Return the derivation as plain text."""
        lefts = ["" if step.left is None else sstr(step.left) for step in self.steps]
        width = max((len(left) for left in lefts if len(left) <= _ALIGNED), default=0)
        rows = [self.title, "─" * len(self.title)]
        for step, left in zip(self.steps, lefts, strict=True):
            rule = f"    [{step.rule}]" if step.rule else ""
            rows.append(f"{_MARKS[step.verified]} {left:>{width}} {step.relation} {sstr(step.right)}{rule}")
        return "\n".join([*rows, *([self.remark] if self.remark else []), self.verdict])

    def __str__(self) -> str:
        return self.unicode()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_latex_(self) -> str:
        foot = [rf"\text{{{escaped(words)}}}" for words in (self.remark, self.verdict) if words]
        rows = [rf"\textbf{{{escaped(self.title)}}}", self.latex(), *foot]
        return "$$\\begin{gathered}\n" + " \\\\\n".join(rows) + "\n\\end{gathered}$$"
