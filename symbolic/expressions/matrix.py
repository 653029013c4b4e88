"""Represent sums and products of matrices that keep their order and name shapes that don't fit."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NoReturn

from sympy import Basic, Expr, Identity, MatrixExpr, Mul, Transpose, ZeroMatrix, sympify
from sympy.core.decorators import call_highest_priority
from sympy.matrices.expressions import MatAdd, MatMul
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer

from symbolic.errors import ShapeMismatch, SymbolicError
from symbolic.expressions.latex import typeset
from symbolic.expressions.operand import OPERATORS, operand, refuse
from symbolic.expressions.scalar import Entry, exact


def _fits(left: Expr, right: Expr) -> bool:
    return bool(left == right) or (left - right).expand() == 0


def check_product(left: MatrixExpr, right: MatrixExpr) -> None:
    """Raise if two factors don't multiply."""
    if not _fits(left.shape[1], right.shape[0]):
        raise ShapeMismatch(
            f"{left} is {left.shape[0]} × {left.shape[1]} and {right} is {right.shape[0]} × {right.shape[1]}:"
            " they don't multiply; give the left factor as many columns as the right one has rows, or transpose one"
        )


def check_sum(left: MatrixExpr, right: MatrixExpr) -> None:
    """Raise if two summands don't have the same shape."""
    if not (_fits(left.shape[0], right.shape[0]) and _fits(left.shape[1], right.shape[1])):
        raise ShapeMismatch(
            f"{left} is {left.shape[0]} × {left.shape[1]} and {right} is {right.shape[0]} × {right.shape[1]}:"
            " they don't add; give both the same shape"
        )


_INVERSE = (
    "an inverse of A is a matrix of its own, R, with the relations Definition(A * R, identity(n)) and"
    " Definition(R * A, identity(n)), which a block takes as relations=(…, …)"
)

_DIVIDES = f"divides by a matrix: {_INVERSE}"


def _refused(operation: str) -> Callable[..., NoReturn]:
    """Return the method of an operation that has no symbol."""

    def method(self: MatrixExpr, *_: Any, **__: Any) -> NoReturn:
        refuse(operation, self)

    return method


class Matrix(MatrixExpr):
    """The base class of our matrix expressions, whose sums and products keep their order and check shapes."""

    _op_priority = 12.0  # so that these operators win over those of sympy's own matrices

    @call_highest_priority("__rmul__")
    def __mul__(self, other: Any) -> MatrixExpr:
        return MatrixProduct(self, other)

    @call_highest_priority("__mul__")
    def __rmul__(self, other: Any) -> MatrixExpr:
        return MatrixProduct(other, self)

    @call_highest_priority("__radd__")
    def __add__(self, other: Any) -> MatrixExpr:
        return MatrixSum(self, other)

    @call_highest_priority("__add__")
    def __radd__(self, other: Any) -> MatrixExpr:
        return MatrixSum(other, self)

    def __sub__(self, other: Any) -> MatrixExpr:
        return MatrixSum(self, MatrixProduct(-1, other))

    def __rsub__(self, other: Any) -> MatrixExpr:
        return MatrixSum(other, MatrixProduct(-1, self))

    def __neg__(self) -> MatrixExpr:
        return MatrixProduct(-1, self)

    def _repr_latex_(self) -> str:
        return rf"$\displaystyle {typeset(self)}$"

    __matmul__ = __mul__
    __rmatmul__ = __rmul__

    def __truediv__(self, other: Any) -> MatrixExpr:
        number = operand(other)
        if isinstance(number, MatrixExpr):
            raise SymbolicError(f"{self} / {other} {_DIVIDES}")
        return MatrixProduct(1 / exact(number), self)

    def __rtruediv__(self, other: Any) -> MatrixExpr:
        raise SymbolicError(f"{other} / {self} {_DIVIDES}")

    __abs__ = _refused("abs")
    __float__ = _refused("a function of one number")
    __round__ = _refused("round")
    __mod__ = _refused("%")
    __floordiv__ = _refused("//")
    __lt__ = __le__ = __gt__ = __ge__ = _refused("a comparison (<, max, min, where)")
    __array__ = _refused("an array")
    __jax_array__ = _refused("a function of JAX, or a product with an array,")

    def __array_ufunc__(self, function: Any, method: str, *operands: Any, **_: Any) -> MatrixExpr:
        if method != "__call__" or function.__name__ not in OPERATORS:
            refuse(function.__name__, self)
        return OPERATORS[function.__name__](*map(operand, operands))

    def __array_function__(self, function: Any, *_: Any) -> MatrixExpr:
        refuse(function.__name__, self)

    def __pow__(self, exponent: Any) -> MatrixExpr:
        check_product(self, self)
        if isinstance(exponent, bool) or not (number := sympify(exponent)).is_Integer or number < 0:
            raise SymbolicError(f"{self} to the power {exponent}: a power is a whole number, 0 or more; {_INVERSE}")
        return MatrixProduct(*[self] * int(number)) if number else UnitMatrix(self.shape[0])

    def _entry(self, i: Any, j: Any, **_: Any) -> Expr:
        places = zip((i, j), self.shape, strict=True)
        return Entry(self, *(size + place if place.is_negative else place for place, size in places))

    def _eval_transpose(self) -> MatrixExpr:
        return Transposed(self)

    def doit(self, **hints: Any) -> MatrixExpr:
        """Return the expression with the sums in it whose bounds are numbers written out, and its order kept.

        Args:
            hints: as in sympy.
        """
        return Basic.doit(self, **hints)  # that of sympy's sums and products sorts what they are made of


class UnitMatrix(Matrix, Identity):
    """The identity of a size, whose sums and products are ours.

    Args:
        size: its number of rows.
    """

    def _entry(self, i: Any, j: Any, **_: Any) -> Expr:
        return Identity._entry(self, i, j)

    def _eval_transpose(self) -> MatrixExpr:
        return self


class Transposed(Matrix, Transpose):
    """The transpose of a matrix, whose sums and products are ours.

    Args:
        matrix: the matrix.
    """

    def _entry(self, i: Any, j: Any, **_: Any) -> Expr:
        return self.arg._entry(j, i)

    def _eval_transpose(self) -> MatrixExpr:
        return self.arg


class MatrixSum(Matrix, MatAdd):
    """A sum in the order in which it was written, without zeros.

    Args:
        summands: matrices of one shape.
    """

    def __new__(cls, *summands: Any) -> MatrixExpr:
        """Return the sum, or its only summand."""
        first = summands[0]
        for summand in summands:
            if not isinstance(summand, MatrixExpr):
                raise ShapeMismatch(f"{operand(summand)} is no matrix: only matrices of one shape add")
            check_sum(first, summand)
        flat = [
            part for s in summands for part in (s.args if isinstance(s, MatAdd) else (s,)) if not part.is_ZeroMatrix
        ]
        if len(flat) < 2:
            return flat[0] if flat else first
        return Basic.__new__(cls, *flat)  # MatAdd.__new__ compares shapes as they are written, N M + M with M (N + 1)

    def _sympystr(self, printer: Printer) -> str:
        first, *rest = (printer._print(summand) for summand in self.args)
        return first + "".join(f" − {text[1:]}" if text.startswith("−") else f" + {text}" for text in rest)


class MatrixProduct(Matrix, MatMul):
    """A product in the order in which it was written, without identities, its coefficient first.

    Args:
        factors: matrices that multiply, and scalars.
    """

    def __new__(cls, *factors: Any) -> MatrixExpr:
        """Return the product, or its only factor."""
        flat = [part for f in factors for part in (f.args if isinstance(f, MatMul) else (operand(f),))]
        coefficient = Mul(*(exact(f) for f in flat if not isinstance(f, MatrixExpr)))
        matrices = [f for f in flat if isinstance(f, MatrixExpr)]
        for left, right in pairwise(matrices):
            check_product(left, right)
        shape = (matrices[0].shape[0], matrices[-1].shape[1])
        if coefficient == 0 or any(f.is_ZeroMatrix for f in matrices):
            return ZeroMatrix(*shape)
        matrices = [f for f in matrices if not f.is_Identity] or matrices[:1]
        if coefficient == 1 and len(matrices) == 1:
            return matrices[0]
        # MatMul.__new__ compares shapes as they are written.
        return Basic.__new__(cls, *([] if coefficient == 1 else [coefficient]), *matrices)

    def _eval_transpose(self) -> MatrixExpr:
        coefficient, factors = self.as_coeff_matrices()
        return MatrixProduct(coefficient, *(Transpose(factor).doit(deep=False) for factor in reversed(factors)))

    def _sympystr(self, printer: Printer) -> str:
        coefficient, factors = self.as_coeff_matrices()
        sign, size = ("−", -coefficient) if coefficient.could_extract_minus_sign() else ("", coefficient)
        numbers = [] if size == 1 else size.as_ordered_factors()
        return sign + " ".join(printer.parenthesize(factor, PRECEDENCE["Mul"]) for factor in (*numbers, *factors))
