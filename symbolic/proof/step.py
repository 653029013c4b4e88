"""Represent one equation of a derivation, and decide whether it holds."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sympy import MatrixExpr

from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import decide
from symbolic.expressions.matrix import check_sum


class Equation(NamedTuple):
    """A statement of a step, or one that it rests on.

    Args:
        left: left side.
        right: right side.
    """

    left: Any
    right: Any


def equations(definitions: Iterable[Definition]) -> tuple[Equation, ...]:
    """Return definitions and hypotheses as equations."""
    return tuple(Equation(definition.left, definition.right) for definition in definitions)


@dataclass(frozen=True)
class Step:
    """One equation of a derivation.

    Args:
        left: left side; None continues the line above.
        right: right side.
        rule: the rule that gives it, in words.
        verified: whether a check confirmed it; None for a definition, an assumption and an induction hypothesis.
        relation: `=`, `:=` for a definition, `≈` for a first order, `≤` or `<`.
        by_induction: whether it is an induction hypothesis, which the induction discharges: no assumption.
        sizes: the sizes at which it was checked, in words, if it is checked at those only; empty for a proof.
        using: the definitions, relations and earlier equations that the check applied.
        states: equations that its rule states in words beside it, such as the change of every other letter.
    """

    left: Any
    right: Any
    rule: str
    verified: bool | None
    relation: str = "="
    by_induction: bool = False
    sizes: str = ""
    using: tuple[Equation, ...] = ()
    states: tuple[Equation, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether it is proved, for all sizes."""
        return bool(self.verified) and not self.sizes

    @property
    def assumed(self) -> bool:
        """Whether it is an assumption: neither checked, nor a definition, nor an induction hypothesis."""
        return self.verified is None and self.relation != ":=" and not self.by_induction


Hypothesis = str | Step
"""A sentence, or an equation whose rule says what it is."""


def equality(left: MatrixExpr, right: MatrixExpr, rule: str, using: Iterable[Definition] = ()) -> Step:
    """Return a step that holds if both sides have the same normal form, with the definitions that this rests on."""
    decision = decide(left, right, using)
    return Step(left, right, rule, decision.equal, using=equations(decision.used))


def continued(left: MatrixExpr, right: MatrixExpr, rule: str, using: Iterable[Definition] = ()) -> Step:
    """Return the same step as a line that continues the one above it, which ends with the left side."""
    return replace(equality(left, right, rule, using), left=None)


def let(left: MatrixExpr, right: MatrixExpr, rule: str = "definition", also: Iterable[Definition] = ()) -> Step:
    """Return a step that names an expression."""
    check_sum(left, right)
    return Step(left, right, rule, None, ":=", states=equations(also))


def suppose(left: MatrixExpr, right: MatrixExpr, rule: str, also: Iterable[Definition] = ()) -> Step:
    """Return a step that assumes an equation."""
    check_sum(left, right)
    return Step(left, right, rule, None, states=equations(also))


def induction_hypothesis(left: MatrixExpr, right: MatrixExpr, rule: str = "induction hypothesis") -> Step:
    """Return the step that an induction supposes at a symbolic depth, and discharges."""
    return replace(suppose(left, right, rule), by_induction=True)


def let_each(*definitions: Definition, rule: str = "definition") -> tuple[Step, ...]:
    """Return the steps that state definitions."""
    where = {d: "".join(f", for {a} ≤ {b}" for a, b in d.where) for d in definitions}
    return tuple(let(d.left, d.right, rule + words) for d, words in where.items())
