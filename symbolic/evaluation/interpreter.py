"""Evaluate expressions at matrices of numbers, in any arithmetic: exact, or that of an array library."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

from sympy import Add, Expr, Identity, ImmutableMatrix, MatrixExpr, Mul, Pow, Symbol, ZeroMatrix
from sympy.matrices.expressions import HadamardProduct, KroneckerProduct, MatAdd, MatMul, MatPow, Trace, Transpose
from sympy.matrices.expressions.matexpr import MatrixElement

from symbolic.equality.definition import Definition, lookup
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.matrix import MatrixProduct
from symbolic.expressions.operations import Diagonal, Vec
from symbolic.expressions.parameter import Ones, Parameter
from symbolic.expressions.scalar import Entry, scalars_in
from symbolic.vectorisation.entries import kronecker, vec


@dataclass(frozen=True)
class Arithmetic:
    """The operations on matrices with which expressions are evaluated; vectors are matrices of one column.

    Args:
        multiply: product of two matrices.
        hadamard: product of two matrices of one shape, entry by entry.
        transpose: transpose of one.
        kronecker: Kronecker product of two.
        diagonal: the diagonal matrix of a column.
        vec: the entries row by row as one column.
        identity: the identity of a size.
        zeros: a zero matrix of rows and columns.
        scale: a coefficient times a matrix.
        ones: a column of ones of a size.
        entry: one entry of a matrix, as a matrix of one row and one column.
        power: a matrix to a power, entry by entry.
        activations: `σ` and, where it occurs, `σ'` of a matrix, entry by entry; by name where there are several.
    """

    multiply: Callable[[Any, Any], Any]
    hadamard: Callable[[Any, Any], Any]
    transpose: Callable[[Any], Any]
    kronecker: Callable[[Any, Any], Any]
    diagonal: Callable[[Any], Any]
    vec: Callable[[Any], Any]
    identity: Callable[[int], Any]
    zeros: Callable[[int, int], Any]
    scale: Callable[[Expr, Any], Any]
    ones: Callable[[int], Any]
    entry: Callable[[Any, int, int], Any]
    power: Callable[[Any, Expr], Any]
    activations: tuple[Callable[[Any], Any], ...] | Mapping[str, tuple[Callable[[Any], Any], ...]]


def exact(activation: Callable[[Any], Any], slope: Callable[[Any], Any] | None = None) -> Arithmetic:
    """Return exact arithmetic with matrices of rational numbers."""
    functions = (activation,) if slope is None else (activation, slope)
    return Arithmetic(
        multiply=lambda a, b: a * b,
        hadamard=lambda a, b: a.multiply_elementwise(b),
        transpose=lambda a: a.T,
        kronecker=kronecker,
        diagonal=lambda v: ImmutableMatrix.diag(*v),
        vec=vec,
        identity=ImmutableMatrix.eye,
        zeros=ImmutableMatrix.zeros,
        scale=lambda c, a: c * a,
        ones=lambda size: ImmutableMatrix.ones(size, 1),
        entry=lambda a, i, j: ImmutableMatrix([[a[i, j]]]),
        power=lambda a, exponent: a.applyfunc(lambda entry: entry**exponent),
        activations=tuple(partial(ImmutableMatrix.applyfunc, f=f) for f in functions),
    )


class Interpreter:
    """The values of expressions, of which each part is evaluated once, however often it occurs.

    Args:
        values: the matrix of every parameter that has no definition.
        arithmetic: how matrices are computed with.
        definitions: definitions of parameters.
        sizes: the number that every symbol in a size stands for, where identities and zeros need it.
    """

    def __init__(
        self,
        values: Mapping[Parameter, Any] | Callable[[Parameter], Any],
        arithmetic: Arithmetic,
        definitions: Iterable[Definition] = (),
        sizes: Mapping[Symbol, Any] | None = None,
    ) -> None:
        self.values, self.arithmetic = values, arithmetic
        self.definitions, self.sizes = tuple(definitions), sizes or {}
        self.seen: dict[Any, Any] = {}

    def value(self, expression: Expr) -> Any:
        """Return the value of an expression; that of a scalar is a matrix of one row and one column."""
        if expression not in self.seen:
            self.seen[expression] = self._compute(expression)
        return self.seen[expression]

    def _number(self, size: Expr) -> int:
        number = size.xreplace(self.sizes)
        if not number.is_Integer:
            raise SymbolicError(f"{size} is a symbol: give a number for it")
        return int(number)

    def _parameter(self, parameter: Parameter) -> Any:
        if (meaning := lookup(parameter, self.definitions, {})) is not None:
            return self.value(meaning)
        if callable(self.values):
            return self.values(parameter)
        if parameter not in self.values:
            rows, columns = parameter.shape
            raise SymbolicError(f"{parameter} has no value: give a matrix of {rows} × {columns} numbers for it")
        return self.values[parameter]

    def _sum(self, summands: Iterable[MatrixExpr]) -> Any:
        return reduce(add, map(self.value, summands))

    def _product(self, product: MatMul) -> Any:
        coefficient, factors = product.as_coeff_matrices()
        result = self.value(factors[-1])
        for factor in reversed(factors[:-1]):  # from the right, so that a product with a vector stays one
            result = self.arithmetic.multiply(self.value(factor), result)
        if coefficient == 1:
            return result
        if scalars_in(coefficient):
            return self.arithmetic.kronecker(self.value(coefficient), result)
        return self.arithmetic.scale(coefficient.xreplace(self.sizes), result)

    def _function(self, activation: Activation) -> Callable[[Any], Any]:
        known = self.arithmetic.activations
        if isinstance(known, tuple):
            return known[activation.order]
        if activation.name not in known:
            raise SymbolicError(f"{activation.name} is no function of {', '.join(known)}: give one of that name")
        return known[activation.name][activation.order]

    def _compute(self, e: Expr) -> Any:
        a = self.arithmetic
        match e:
            case MatrixElement():
                return a.entry(self.value(e.parent), *map(self._number, e.indices))
            case Trace():
                diagonal = (self.value(Entry(e.arg, k, k)) for k in range(self._number(e.arg.shape[0])))
                return reduce(add, diagonal)
            case Add() if not isinstance(e, MatAdd):
                return self._sum(e.args)
            case Mul() if not isinstance(e, MatMul):
                return reduce(a.multiply, map(self.value, e.args))
            case Pow() if scalars_in(e.base):
                return a.power(self.value(e.base), e.exp.xreplace(self.sizes))
            case Ones():
                return a.ones(self._number(e.shape[0]))
            case Parameter():
                return self._parameter(e)
            case MatAdd():
                return self._sum(e.args)
            case MatMul():
                return self._product(e)
            case MatPow() if e.exp.is_Integer and e.exp > 0:
                return self.value(MatrixProduct(*[e.base] * int(e.exp)))
            case Transpose():
                return a.transpose(self.value(e.arg))
            case Activation():
                return self._function(e)(self.value(e.argument))
            case Diagonal():
                return a.diagonal(self.value(e.vector))
            case HadamardProduct():
                return a.hadamard(*map(self.value, e.args))
            case KroneckerProduct():
                return a.kronecker(*map(self.value, e.args))
            case Vec():
                return a.vec(self.value(e.matrix))
            case IndexedSum():
                terms = [e.at(k) for k in range(self._number(e.first), self._number(e.last) + 1)]
                return self._sum(terms) if terms else a.zeros(*map(self._number, e.shape))
            case Identity():
                return a.identity(self._number(e.shape[0]))
            case ZeroMatrix():
                return a.zeros(*map(self._number, e.shape))
            case Expr() if not isinstance(e, MatrixExpr) and not scalars_in(e):
                return a.scale(e.xreplace(self.sizes), a.identity(1))
        raise SymbolicError(f"{e} ({type(e).__name__}) can't be evaluated")
