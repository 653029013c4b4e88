"""Represent the vector of a matrix's entries."""

from typing import Any

from sympy import Integer
from sympy.printing.printer import Printer

from symbolic.expressions.matrix import Matrix


class Vec(Matrix):
    """`vec(X)`, the entries of a matrix row by row, which the papers write as `x'` (their `T_D`).

    Args:
        matrix: `X`, `[N, M]`.
    """

    def __new__(cls, matrix: Any) -> "Vec":
        """Return the expression."""
        return super().__new__(cls, matrix)

    matrix = property(lambda self: self.args[0])
    shape = property(lambda self: (self.args[0].shape[0] * self.args[0].shape[1], Integer(1)))

    def _latex(self, printer: Printer) -> str:
        return rf"\operatorname{{vec}}\!\left({printer._print(self.matrix)}\right)"

    def _sympystr(self, printer: Printer) -> str:
        return f"vec({printer._print(self.matrix)})"
