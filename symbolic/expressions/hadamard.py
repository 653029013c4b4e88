"""Represent the product of two matrices entry by entry."""

from typing import Any

from sympy import Basic, HadamardProduct, MatrixExpr, Transpose
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer

from symbolic.expressions.matrix import Matrix, check_sum


class Hadamard(Matrix, HadamardProduct):
    """`A ⊙ B`, the product entry by entry.

    Args:
        left: `A`.
        right: `B`, of the same shape.
    """

    def __new__(cls, left: Any, right: Any) -> "Hadamard":
        """Return the expression."""
        check_sum(left, right)
        # HadamardProduct.__new__ compares shapes as they are written, N M + M with M (N + 1).
        return Basic.__new__(cls, left, right)

    def _eval_transpose(self) -> MatrixExpr:
        return Hadamard(*(Transpose(factor).doit(deep=False) for factor in self.args))

    def _sympystr(self, printer: Printer) -> str:
        return " ⊙ ".join(printer.parenthesize(factor, PRECEDENCE["Mul"] + 1) for factor in self.args)
