"""Represent the diagonal matrix of a vector."""

from typing import Any

from sympy.printing.printer import Printer

from symbolic.errors import ShapeMismatch
from symbolic.expressions.matrix import Matrix


class Diagonal(Matrix):
    """`diag(v)`, the square matrix with a vector on its diagonal: `diag(v) w` is `v ⊙ w`.

    Args:
        vector: `v`.
    """

    def __new__(cls, vector: Any) -> "Diagonal":
        """Return the expression."""
        if vector.shape[1] != 1:
            raise ShapeMismatch(f"diag takes a vector, and {vector} is {vector.shape[0]} × {vector.shape[1]}")
        return super().__new__(cls, vector)

    vector = property(lambda self: self.args[0])
    shape = property(lambda self: (self.args[0].shape[0], self.args[0].shape[0]))

    def _eval_transpose(self) -> "Diagonal":
        return self

    def _latex(self, printer: Printer) -> str:
        return rf"\operatorname{{diag}}\!\left({printer._print(self.vector)}\right)"

    def _sympystr(self, printer: Printer) -> str:
        return f"diag({printer._print(self.vector)})"
