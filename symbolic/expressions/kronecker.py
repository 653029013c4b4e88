"""Represent the Kronecker product of two matrices."""

from typing import Any

from sympy import Basic, KroneckerProduct, MatrixExpr, Transpose
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer

from symbolic.expressions.matrix import Matrix


class Kronecker(Matrix, KroneckerProduct):
    """`A ⊗ B`.

    Args:
        left: `A`.
        right: `B`.
    """

    def __new__(cls, left: Any, right: Any) -> "Kronecker":
        """Return the expression."""
        # KroneckerProduct.__new__ would make one identity of two, which a derivation shows apart.
        return Basic.__new__(cls, left, right)

    def _eval_transpose(self) -> MatrixExpr:
        return Kronecker(*(Transpose(factor).doit(deep=False) for factor in self.args))

    def _sympystr(self, printer: Printer) -> str:
        return " ⊗ ".join(printer.parenthesize(factor, PRECEDENCE["Mul"] + 1) for factor in self.args)
