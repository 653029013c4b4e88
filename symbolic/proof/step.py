"""Represent one equation of a derivation, and decide whether it holds."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sympy import MatrixExpr

from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal
from symbolic.expressions.matrix import check_sum


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
    """

    left: Any
    right: Any
    rule: str
    verified: bool | None
    relation: str = "="
    by_induction: bool = False
    sizes: str = ""

    @property
    def proved(self) -> bool:
        """Whether it is proved, for all sizes."""
        return bool(self.verified) and not self.sizes

    @property
    def assumed(self) -> bool:
        """Whether it is an assumption: neither checked, nor a definition, nor an induction hypothesis."""
        return self.verified is None and self.relation != ":=" and not self.by_induction


def equality(left: MatrixExpr, right: MatrixExpr, rule: str, using: Iterable[Definition] = ()) -> Step:
    """Return a step that holds if both sides have the same normal form.

    Args:
        left: left side.
        right: right side.
        rule: the rule that gives it, in words.
        using: the definitions, assumptions and induction hypotheses that it rests on.
    """
    return Step(left, right, rule, equal(left, right, using))


def let(left: MatrixExpr, right: MatrixExpr, rule: str = "definition") -> Step:
    """Return a step that names an expression.

    Args:
        left: the name.
        right: its meaning.
        rule: a word on it.

    Raises:
        ShapeMismatch: if the two don't have the same shape.
    """
    check_sum(left, right)
    return Step(left, right, rule, None, ":=")


def suppose(left: MatrixExpr, right: MatrixExpr, rule: str) -> Step:
    """Return a step that assumes an equation.

    Args:
        left: left side.
        right: right side.
        rule: a word on it.

    Raises:
        ShapeMismatch: if the two don't have the same shape.
    """
    check_sum(left, right)
    return Step(left, right, rule, None)


def induction_hypothesis(left: MatrixExpr, right: MatrixExpr, rule: str = "induction hypothesis") -> Step:
    """Return the step that an induction supposes at a symbolic depth, and discharges.

    Args:
        left: left side.
        right: right side.
        rule: a word on it.

    Raises:
        ShapeMismatch: if the two don't have the same shape.
    """
    return replace(suppose(left, right, rule), by_induction=True)


def let_each(*definitions: Definition, rule: str = "definition") -> tuple[Step, ...]:
    """Return the steps that state definitions.

    Args:
        definitions: the definitions.
        rule: a word on them.
    """
    where = {d: "".join(f", for {a} ≤ {b}" for a, b in d.where) for d in definitions}
    return tuple(let(d.left, d.right, rule + words) for d, words in where.items())
