"""Represent the Kronecker product of two matrices."""

from typing import Any

from sympy import Basic, HadamardProduct, Integer, KroneckerProduct, MatrixExpr, Transpose
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer

from symbolic.errors import ShapeMismatch
from symbolic.expressions.matrix import Matrix, check_sum


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
