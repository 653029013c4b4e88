"""A derivation: equations in a row, each with the rule that gives it and whether the normal form confirms it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sympy import MatrixExpr, sstr

from symbolic.expressions.latex import escaped, typeset
from symbolic.expressions.lines import lines
from symbolic.expressions.parameter import Parameter, parameters_replaced
from symbolic.proof.step import Step

_LINE = 88  # characters of plain text that one line of a formula holds beside its left side

_LEFT = 40  # characters of a left side that stands beside its right one
_BESIDE = 36  # characters of a rule that stands beside its formula

_ALIGNED = 24  # left sides up to this length are aligned in plain text

_LATEX_RELATION = {"=": "=", ":=": ":=", "≤": r"\le", "<": "<", "≈": r"\approx"}


def _latex_lines(step: Step) -> list[str]:
    relation = _LATEX_RELATION[step.relation]
    if step.verified is False:
        relation = rf"\overset{{?}}{{{relation}}}"
    left, width, above = "", 0, []
    if step.left is not None:
        left, width = typeset(step.left), len(sstr(step.left))
    if width > _LEFT:
        first, *others = lines(step.left, _LINE)
        above = [rf"& {first.latex}", *(rf"&\quad {line.latex}" for line in others)]
        left, width = r"\qquad", 0
    first, *others = lines(step.right, _LINE - width)
    rows = [*above, f"{left} &{relation} {first.latex}", *(rf"&\qquad {line.latex}" for line in others)]
    if not step.rule:
        return rows
    rule, length = rf"\text{{{escaped(step.rule)}}}", [first, *others][-1].length
    if len(step.rule) > _BESIDE or width + length + len(step.rule) > _LINE:  # the rule gets a line of its own
        return [*rows, rf"&\qquad\qquad {rule}"]
    return [*rows[:-1], rf"{rows[-1]} && {rule}"]


_MARKS = {True: "✓", False: "✗", None: " "}


@dataclass(frozen=True)
class Derivation:
    """A list of steps with a title.

    Args:
        title: what is derived.
        steps: the equations, in order.
        remark: one sentence on what it says or assumes.
    """

    title: str
    steps: tuple[Step, ...]
    remark: str = ""

    @property
    def verified(self) -> bool:
        """Whether every check holds."""
        return all(step.verified is not False for step in self.steps)

    @property
    def verdict(self) -> str:
        """How many checks hold, in words, and apart from them how much was defined and assumed."""
        checks = [step.verified for step in self.steps if step.verified is not None]
        stated = [step.relation for step in self.steps if step.verified is None]
        counts = {"definition": stated.count(":="), "hypothesis": stated.count("=")}
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
            put: what stands for a parameter.
        """
        sides = ([parameters_replaced(side, put) for side in (step.left, step.right)] for step in self.steps)
        steps = (replace(step, left=left, right=right) for step, (left, right) in zip(self.steps, sides, strict=True))
        return replace(self, steps=tuple(steps))

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
