"""Represent a derivation: equations, each with its rule and whether the normal form confirms it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from textwrap import wrap
from typing import Any

from sympy import MatrixExpr, sstr

from symbolic.expressions.latex import escaped, typeset
from symbolic.expressions.parameter import Parameter, parameters_replaced
from symbolic.proof.hypotheses import Condition, conditions_of, conventions, in_words, requirements
from symbolic.proof.line_breaks import broken, width
from symbolic.proof.step import Equation, Hypothesis, Step

ROOM = 415.0
"""The width of a formula in points, beside its number on a page of A4."""

LEFT = 0.35
"""The part of a line that a left side takes at most beside its right one."""

_ALIGNED = 24  # left sides up to this length are aligned in plain text

_RELATION, _INDENT, _QUAD = 13.0, 20.0, 10.0  # points

_LATEX_RELATION = {"=": "=", ":=": ":=", "≤": r"\le", "<": "<", "≈": r"\approx"}


def equation_rows(step: Step, line: float = ROOM) -> list[str]:
    """Return the rows of an equation that fit into a line, its relation behind an `&`."""
    relation = _LATEX_RELATION[step.relation]
    if step.verified is False:
        relation = rf"\overset{{?}}{{{relation}}}"
    elif step.sizes:
        relation = rf"\overset{{\circ}}{{{relation}}}"
    left, right, above = "" if step.left is None else typeset(step.left), typeset(step.right), []
    first, *following = broken(right, line - _RELATION - width(left))
    if following:
        if width(left) > LEFT * line:
            first, *following = broken(left, line - _INDENT - _QUAD)
            above = [f"& {first}", *(rf"&\quad {line}" for line in following)]
            left = r"\qquad"
        first, *following = broken(right, line - _RELATION - _INDENT - width(left))
    return [*above, f"{left} &{relation} {first}", *(rf"&\qquad {line}" for line in following)]


def _latex_lines(step: Step) -> list[str]:
    rows = equation_rows(step)
    return [*rows, rf"&\qquad\qquad \text{{{escaped(explanation(step))}}}"] if step.rule else rows


def explanation(step: Step) -> str:
    """Return the rule of an equation, with the sizes at which it was checked if it is checked at those only."""
    return f"{step.rule}; {CHECKED_AT} {step.sizes}" if step.sizes else step.rule


def stated_words(hypothesis: Hypothesis) -> str:
    """Return a hypothesis in words, or the words before its equation; none if that goes on with the one before it."""
    if isinstance(hypothesis, str):
        return hypothesis
    return f"{hypothesis.rule}:" if hypothesis.rule else ""


CHECKED_AT = "not proved, checked at"

_MARKS = {True: "✓", False: "✗", None: " "}

_CITED = re.compile(r"\bEq\. \d")

_SOURCE = "Equation numbers are those of Wang & Li, arXiv:2407.00958, in its newest version."

_TEXT_WIDTH = 100  # characters of prose in a line


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"


@dataclass(frozen=True)
class Derivation:
    """A list of steps with a title.

    Args:
        title: its title.
        steps: the equations, in order.
        remark: one sentence on what it says or assumes.
        given: definitions that the steps rest on, which are stated before them.
        words: the meanings of letters that the table of letters doesn't know.
        premises: what is assumed, in sentences and equations, which are stated before everything else.
        known: equations that the premises state in words.
        counts: what `i` and `j` count: a layer, or a token.
    """

    title: str
    steps: tuple[Step, ...]
    remark: str = ""
    given: tuple[Step, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict, compare=False)
    premises: tuple[Hypothesis, ...] = ()
    known: tuple[Equation, ...] = ()
    counts: str = "layer"

    @cached_property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The premises, and what the steps ask of activation functions, sizes and numbers."""
        return *self.premises, *requirements(self._stated, self.words, self.counts)

    @property
    def conventions(self) -> tuple[str, ...]:
        """The hypotheses that neither the premises say nor the letters with their spaces."""
        return conventions(self._stated)

    @property
    def _stated(self) -> tuple[Step, ...]:
        return *(each for each in self.premises if isinstance(each, Step)), *self.given, *self.steps

    @cached_property
    def conditions(self) -> tuple[tuple[Condition, ...], ...]:
        """Conditions of each step beyond the hypotheses: those that it used and nothing before it states."""
        stated = [each for each in self.premises if isinstance(each, Step)]
        return conditions_of(self.steps, (*stated, *self.given), self.known)

    @property
    def lines(self) -> tuple[Step, ...]:
        """Definitions and steps as they are shown, each step's conditions behind its rule."""
        with_conditions = (
            replace(step, rule=", where ".join(filter(None, (step.rule, in_words(conditions)))))
            for step, conditions in zip(self.steps, self.conditions, strict=True)
        )
        return *self.given, *with_conditions

    @property
    def verified(self) -> bool:
        """Whether every check holds, those at some sizes only too."""
        return all(step.verified is not False for step in self.steps)

    @property
    def proved(self) -> bool:
        """Whether there is a check, and every one is a proof."""
        return self.verified and any(step.proved for step in self.steps) and not any(step.sizes for step in self.steps)

    @property
    def source(self) -> str:
        """A sentence on the paper whose equations are named by their numbers; empty if none is."""
        stated = (*self.hypotheses, *self.steps)
        return _SOURCE if any(_CITED.search(each if isinstance(each, str) else each.rule) for each in stated) else ""

    @property
    def inductions(self) -> tuple[Step, ...]:
        """The equations that are proved for every `i` by induction, as they stand at `i`."""
        return tuple(step for step in self.steps if step.by_induction)

    @property
    def verdict(self) -> str:
        """The number of checks that hold, of definitions and of assumptions, in words."""
        checks = [step for step in self.steps if step.verified is not None]
        proofs = [step for step in checks if not step.sizes]
        counts = {
            "definition": sum(step.relation == ":=" for step in (*self.given, *self.steps)),
            "assumption": sum(step.assumed for step in self.steps),
        }
        given = [_counted(number, noun) for noun, number in counts.items() if number]
        parts = []
        if proofs or not checks:
            parts.append(f"{sum(map(bool, (step.verified for step in proofs)))} of {len(proofs)} checks hold")
        if at_sizes := [step.verified for step in checks if step.sizes]:
            parts.append(f"{sum(map(bool, at_sizes))} of {len(at_sizes)} hold at the sizes checked, and aren't proved")
        return (
            "; ".join(parts)
            + (", by induction" if self.inductions else "")
            + (f", with {' and '.join(given)}" if given else "")
            + ("" if self.verified else ": NOT PROVED")
        )

    def with_parameters(self, put: Callable[[Parameter], MatrixExpr]) -> "Derivation":
        """Return the derivation with something else in the place of its parameters.

        Args:
            put: the replacement of a parameter.
        """

        def put_in_each(stated: tuple[Equation, ...]) -> tuple[Equation, ...]:
            return tuple(Equation(*(parameters_replaced(side, put) for side in equation)) for equation in stated)

        def put_in(step: Step) -> Step:
            left, right = parameters_replaced(step.left, put), parameters_replaced(step.right, put)
            using, states = put_in_each(step.using), put_in_each(step.states)
            return replace(step, left=left, right=right, using=using, states=states)

        return replace(
            self,
            steps=tuple(map(put_in, self.steps)),
            given=tuple(map(put_in, self.given)),
            premises=tuple(each if isinstance(each, str) else put_in(each) for each in self.premises),
            known=put_in_each(self.known),
        )

    def rows(self) -> str:
        """Return the rows of an `aligned` environment: equations and, in a second column, their rules."""
        return " \\\\\n".join(line for step in self.lines for line in _latex_lines(step))

    def latex(self) -> str:
        """Return the definitions and the steps as LaTeX for a formula: an `aligned` environment.

        A `?` stands over the relation of what isn't verified, a circle over that of what is checked at some sizes only.
        """
        return f"\\begin{{aligned}}\n{self.rows()}\n\\end{{aligned}}"

    def unicode(self) -> str:
        """Return the derivation as plain text: hypotheses, definitions, what is proved, and the steps."""
        written = [("" if s.left is None else sstr(s.left), s) for s in self.lines]
        width = max((len(left) for left, _ in written if len(left) <= _ALIGNED), default=0)
        equations = []
        for left, step in written:
            mark = "○" if step.verified and step.sizes else _MARKS[step.verified]
            rule = f"    [{explanation(step)}]" if step.rule else ""
            equations.append(f"{mark} {left:>{width}} {step.relation} {sstr(step.right)}{rule}")
        rows = [self.title, "─" * len(self.title)]
        rows += ["Hypotheses:"] if self.hypotheses else []
        for each in self.hypotheses:
            words = stated_words(each)
            rows += wrap(words, _TEXT_WIDTH, initial_indent="· ", subsequent_indent="  ", break_on_hyphens=False)
            rows += [] if isinstance(each, str) else [f"    {sstr(each.left)} {each.relation} {sstr(each.right)}"]
        rows += equations[: len(self.given)]
        if self.inductions:
            claims = (
                f"{sstr(s.left)} = {sstr(s.right)}{''.join(s.rule.partition(', for ')[1:])}" for s in self.inductions
            )
            rows.append("Claim, for every i ≥ 0: " + " and ".join(claims))
        rows += equations[len(self.given) :]
        return "\n".join([*rows, *filter(None, (self.remark, self.source)), self.verdict])

    def __str__(self) -> str:
        return self.unicode()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_latex_(self) -> str:
        def prose(words: str) -> list[str]:
            return [rf"\text{{{escaped(line)}}}" for line in wrap(words, _TEXT_WIDTH, break_on_hyphens=False)]

        rows = [rf"\textbf{{{escaped(self.title)}}}"]
        for each in self.hypotheses:
            rows += prose(stated_words(each))
            if not isinstance(each, str):
                rows.append("\\begin{aligned}\n" + " \\\\\n".join(equation_rows(each)) + "\n\\end{aligned}")
        rows += [self.latex(), *prose(self.remark), *prose(self.source), *prose(self.verdict)]
        return "$$\\begin{gathered}\n" + " \\\\\n".join(rows) + "\n\\end{gathered}$$"
