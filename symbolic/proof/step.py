"""Represent one equation of a derivation, and decide whether it holds."""

from collections.abc import Iterable
from dataclasses import dataclass
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
        verified: whether a check confirmed it; None for a definition and a hypothesis, which need none.
        relation: `=`, `:=` for a definition, `≈` for a first order, `≤` or `<`.
    """

    left: Any
    right: Any
    rule: str
    verified: bool | None
    relation: str = "="


def equality(left: MatrixExpr, right: MatrixExpr, rule: str, using: Iterable[Definition] = ()) -> Step:
    """Return a step that holds if both sides have the same normal form.

    Args:
        left: left side.
        right: right side.
        rule: the rule that gives it, in words.
        using: the definitions and hypotheses that it rests on.
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


def suppose(left: MatrixExpr, right: MatrixExpr, rule: str = "hypothesis") -> Step:
    """Return a step that assumes an equation, as an induction does at a symbolic depth.

    Args:
        left: left side.
        right: right side.
        rule: a word on it.

    Raises:
        ShapeMismatch: if the two don't have the same shape.
    """
    check_sum(left, right)
    return Step(left, right, rule, None)


def let_each(*definitions: Definition, rule: str = "definition") -> tuple[Step, ...]:
    """Return the steps that state definitions.

    Args:
        definitions: the definitions.
        rule: a word on them.
    """
    return tuple(let(d.left, d.right, rule) for d in definitions)
