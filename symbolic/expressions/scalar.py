"""Represent scalars: entries of matrices, and coefficients in exact numbers."""

from decimal import Decimal

from sympy import Expr, Float, MatrixExpr, Rational, S
from sympy.matrices.expressions.matexpr import MatrixElement
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer

from symbolic.errors import SymbolicError


class Entry(MatrixElement):
    """One entry of a matrix, a number that multiplies matrices; a scalar of its own is the entry of a 1 × 1 matrix.

    Args:
        matrix: the matrix that it stands in, which stays visible: what flows in it flows in the entry.
        row: its row, from 0.
        column: its column, from 0.
    """

    def _place(self, printer: Printer) -> str:
        """Return row and column as the papers count them, from 1; only those that a vector or a scalar has."""
        sizes = zip(self.indices, self.parent.shape, strict=True)
        return ",".join(printer._print(index + 1) for index, size in sizes if size != 1)

    @property
    def precedence(self) -> int:
        """Return the precedence for printing: a scalar of its own binds as its matrix does."""
        return PRECEDENCE["Atom"]

    def _sympystr(self, printer: Printer) -> str:
        place = self._place(printer)
        matrix = printer.parenthesize(self.parent, PRECEDENCE["Atom"], strict=True)
        return f"{matrix}[{place}]" if place else matrix

    def _latex(self, printer: Printer) -> str:
        place = self._place(printer)
        if place:
            return rf"\left({printer._print(self.parent)}\right)_{{{place}}}"
        return printer.parenthesize(self.parent, PRECEDENCE["Atom"], strict=True)


_WRITTEN = 15  # digits that every float of them keeps, and that hardly any result of a computation ends with


def digits(number: float) -> str:
    """Return the significant digits of a number as Python writes it."""
    return "".join(map(str, Decimal(repr(number)).normalize().as_tuple().digits))


def exact(coefficient: Expr) -> Expr:
    """Return a coefficient in exact numbers: a float is the rational number that it is written as, 0.1 is 1/10.

    Example:
        >>> from sympy import sympify
        >>> print(exact(sympify(0.1)) + exact(sympify(1e-17)))
        10000000000000001/100000000000000000
    """
    if not coefficient.is_commutative:  # a function of a matrix
        raise SymbolicError(
            f"{coefficient} multiplies a matrix and is no number: an entrywise function of the stream is an activation,"
            " activation(z, 'relu'), and a number that is computed from it is held, held_scalar('a')"
        )
    if coefficient.has(S.NaN, S.Infinity, S.NegativeInfinity, S.ComplexInfinity):
        raise SymbolicError(f"the coefficient {coefficient} isn't finite: give a finite number")
    if coefficient.is_Float:
        number = float(coefficient)
        if len(digits(number)) > _WRITTEN:
            raise SymbolicError(
                f"{number!r} is a rounded number: a float stands for the decimal number that is written, with at most"
                f" {_WRITTEN} digits; give an exact one, sqrt(3) or Rational(1, 3) of sympy, or a letter, scalar('a')"
            )
        return Rational(repr(number)) if coefficient == number else Rational(coefficient)
    if floats := coefficient.atoms(Float):
        raise SymbolicError(
            f"{coefficient} has the float {', '.join(map(str, sorted(floats)))} among symbols, which rounds what it is"
            " added to: give an exact number, Rational(1, 2) or Integer(1) / 2 of sympy"
        )
    return coefficient


def scalars_in(coefficient: Expr) -> frozenset[Expr]:
    """Return the largest parts of a coefficient that are made of matrices: entries and traces."""
    if any(isinstance(part, MatrixExpr) for part in coefficient.args):
        return frozenset({coefficient})
    return frozenset().union(*(scalars_in(part) for part in coefficient.args))
