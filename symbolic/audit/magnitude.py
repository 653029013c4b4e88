"""Represent absolute values of sums, and decide inequalities between them by their signs."""

from collections.abc import Callable
from itertools import product
from typing import Any

from sympy import Abs, Basic, Expr, Integer, MatrixExpr, Rational, Symbol, symbols
from sympy.matrices.expressions import MatAdd, MatMul

from symbolic.audit.counterexample import Outcome
from symbolic.expressions.matrix import Matrix
from symbolic.theorems.uat_sums import never_negative


class Magnitude(Matrix):
    """The absolute value `|v|` of a sum.

    Args:
        argument: `v`.
    """

    def __new__(cls, argument: Any) -> "Magnitude":
        """Return the expression."""
        return Basic.__new__(cls, argument)

    argument = property(lambda self: self.args[0])
    shape = property(lambda self: (Integer(1), Integer(1)))


def as_number(expression: Any, value: Callable[[MatrixExpr], Expr]) -> Expr:
    """Return an expression as one of real numbers, with `|…|` as their absolute value."""
    match expression:
        case Magnitude():
            return Abs(as_number(expression.argument, value))
        case MatAdd():
            return sum((as_number(part, value) for part in expression.args), Integer(0))
        case MatMul() if not isinstance(expression.args[0], MatrixExpr) and len(expression.args) == 2:
            return expression.args[0] * as_number(expression.args[1], value)
        case MatrixExpr():
            return value(expression)
    return expression


_NUMBERS = (0, 1, -1, 3)


S1, S2, F = symbols("S_1 S_2 f", real=True)

EPSILON = Symbol("varepsilon", positive=True)

PREMISE = Abs(S1 + S2 - F)

_A, _B = symbols("a b", real=True)


def follows(left: Expr, right: Expr) -> Outcome:
    """Decide whether `left < right` follows from `|S_1 + S_2 − f| < ε`, where the difference grows as `ε` does."""
    gap = right - left
    variables = sorted((gap.free_symbols | PREMISE.free_symbols) - {EPSILON}, key=str)
    for numbers in product(_NUMBERS, repeat=len(variables)):
        values = dict(zip(variables, numbers, strict=True))
        values[EPSILON] = PREMISE.subs(values) + Rational(1, 2)
        if gap.subs(values) <= 0:
            given = ", ".join(f"{symbol} = {n}" for symbol, n in values.items()).replace("varepsilon", "ε")
            return Outcome(
                False, f"counterexample, {given}: {left.subs(values)} on the left, {right.subs(values)} on the right"
            )
    closed = gap.subs(EPSILON, PREMISE).subs(S1, _A + F).subs(S2, _B).expand()
    if (gap - EPSILON).has(EPSILON) or not closed.free_symbols <= {_A, _B} or not never_negative(closed, _A, _B):
        return Outcome(None, "neither proved nor refuted by the signs")
    return Outcome(True, "proved by the signs of S_1 − f and S_2")
