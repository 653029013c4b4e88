"""Represent a product of matrices over layers, the last one first, as a stack applies them."""

from collections.abc import Mapping
from typing import Any

from sympy import Basic, Expr, Identity, MatrixExpr, sympify
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer

from symbolic.errors import SymbolicError
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.matrix import Matrix, MatrixProduct


class OrderedProduct(Matrix):
    """`body_last ⋯ body_first`, a product with bounds that may be symbols; the identity if `last` is `first − 1`.

    Args:
        body: a factor, a square matrix in the index.
        index: the bound symbol.
        last: its value in the first factor, the greatest one.
        first: its value in the last factor.

    Example:
        >>> from symbolic.theorems.residual_stack import ResidualStack, j
        >>> print(OrderedProduct(ResidualStack().W(j, 1), j, 32, 1))
        W′₃₂,₁ ⋯ W′₁,₁
    """

    def __new__(cls, body: Any, index: Any, last: Any, first: Any) -> "OrderedProduct":
        """Return the expression."""
        return Basic.__new__(cls, body, index, sympify(last), sympify(first))

    precedence = PRECEDENCE["Mul"] + 1  # a factor among factors needs no brackets
    body = property(lambda self: self.args[0])
    index = property(lambda self: self.args[1])
    last = property(lambda self: self.args[2])
    first = property(lambda self: self.args[3])
    shape = property(lambda self: self.args[0].shape)

    def at(self, value: Any) -> MatrixExpr:
        """Return the factor at one value of the index."""
        return self.body.xreplace({self.index: sympify(value)})

    def written_out(self) -> MatrixExpr:
        """Return the product factor by factor."""
        if not (self.first.is_Integer and self.last.is_Integer):
            raise SymbolicError(f"{self} has no definite number of factors: put numbers in for its bounds")
        factors = [self.at(k) for k in range(int(self.last), int(self.first) - 1, -1)]
        return MatrixProduct(*factors) if factors else Identity(self.shape[0])

    def _text(self, printer: Printer, dots: str) -> str:
        last, first = (printer._print(self.at(k)) for k in (self.last, self.first))
        return last if self.last == self.first else f"{last} {dots} {first}"

    def _latex(self, printer: Printer) -> str:
        return self._text(printer, r"\cdots")

    def _sympystr(self, printer: Printer) -> str:
        return self._text(printer, "⋯")


def written_out(expression: MatrixExpr, values: Mapping[Expr, Any]) -> MatrixExpr:
    """Return an expression at numbers for its symbols, its products over layers factor by factor and its sums too.

    Example:
        >>> from symbolic.theorems.residual_stack import ResidualStack, i, j
        >>> print(written_out(OrderedProduct(ResidualStack().W(j, 1), j, i, 1), {i: 3}))
        W′₃,₁ W′₂,₁ W′₁,₁
    """
    expression = expression.xreplace({symbol: sympify(value) for symbol, value in values.items()})
    expression = expression.xreplace({part: part.written_out() for part in expression.atoms(IndexedSum)})
    return expression.xreplace({part: part.written_out() for part in expression.atoms(OrderedProduct)})
