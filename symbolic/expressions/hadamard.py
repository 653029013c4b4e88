"""The product of two vectors entry by entry."""

from typing import Any

from sympy import Basic, HadamardProduct
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer

from symbolic.errors import ShapeMismatch
from symbolic.expressions.matrix import Matrix, check_sum


class Hadamard(Matrix, HadamardProduct):
    """`v ⊙ w`, the product entry by entry.

    Args:
        left: `v`.
        right: `w`, of the same length.
    """

    def __new__(cls, left: Any, right: Any) -> "Hadamard":
        """Return the expression."""
        check_sum(left, right)
        if left.shape[1] != 1:
            raise ShapeMismatch(f"{left} is {left.shape[0]} × {left.shape[1]}: ⊙ takes vectors; use vec of a matrix")
        return Basic.__new__(cls, left, right)

    def _sympystr(self, printer: Printer) -> str:
        return " ⊙ ".join(printer.parenthesize(factor, PRECEDENCE["Mul"] + 1) for factor in self.args)
