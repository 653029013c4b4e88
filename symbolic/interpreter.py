"""The value of an expression at matrices of numbers, in any arithmetic: exact, or that of an array library."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sympy import Expr, Identity, ImmutableMatrix, KroneckerProduct, MatrixExpr, Transpose, ZeroMatrix
from sympy.matrices.expressions import HadamardProduct, MatAdd, MatMul

from symbolic.definitions import Definition, lookup
from symbolic.errors import SymbolicError
from symbolic.explicit import kronecker, vec
from symbolic.symbols import Activation, Diagonal, IndexedSum, Parameter, Vec


@dataclass(frozen=True)
class Arithmetic:
    """What an expression needs of the matrices it is evaluated with; vectors are matrices of one column.

    Args:
        multiply: product of two matrices.
        transpose: transpose of one.
        kronecker: Kronecker product of two.
        diagonal: the diagonal matrix of a column.
        vec: the entries row by row as one column.
        identity: the identity of a size.
        zeros: a zero matrix of rows and columns.
        scale: a coefficient times a matrix.
        activations: `σ` and, where it occurs, `σ'` of a matrix, entry by entry.
    """

    multiply: Callable[[Any, Any], Any]
    transpose: Callable[[Any], Any]
    kronecker: Callable[[Any, Any], Any]
    diagonal: Callable[[Any], Any]
    vec: Callable[[Any], Any]
    identity: Callable[[int], Any]
    zeros: Callable[[int, int], Any]
    scale: Callable[[Expr, Any], Any]
    activations: tuple[Callable[[Any], Any], ...]


def exact(activation: Callable[[Any], Any], slope: Callable[[Any], Any] | None = None) -> Arithmetic:
    """Return exact arithmetic with matrices of rational numbers.

    Args:
        activation: `σ` of one number.
        slope: `σ'` of one number.
    """
    functions = (activation,) if slope is None else (activation, slope)
    return Arithmetic(
        multiply=lambda a, b: a * b,
        transpose=lambda a: a.T,
        kronecker=kronecker,
        diagonal=lambda v: ImmutableMatrix.diag(*v),
        vec=vec,
        identity=ImmutableMatrix.eye,
        zeros=ImmutableMatrix.zeros,
        scale=lambda c, a: c * a,
        activations=tuple(lambda m, f=f: m.applyfunc(f) for f in functions),
    )


def interpret(
    expression: MatrixExpr,
    values: Mapping[Parameter, Any] | Callable[[Parameter], Any],
    arithmetic: Arithmetic,
    definitions: Iterable[Definition] = (),
) -> Any:
    """Return the value of an expression; whatever it contains more than once is evaluated once.

    Args:
        expression: a matrix expression whose sizes, indices and bounds are numbers.
        values: the matrix of every parameter that has no definition.
        arithmetic: how matrices are computed with.
        definitions: what parameters stand for.

    Raises:
        SymbolicError: if a parameter has no value, or a size or bound is a symbol.
    """
    definitions = tuple(definitions)
    seen: dict[Any, Any] = {}

    def number(size: Expr) -> int:
        if not size.is_Integer:
            raise SymbolicError(f"{size} is a symbol: put in a number, for example with expression.subs")
        return int(size)

    def parameter(p: Parameter) -> Any:
        if (meaning := lookup(p, definitions, {})) is not None:
            return value(meaning)
        if callable(values):
            return values(p)
        if p not in values:
            raise SymbolicError(f"{p} has no value: give a matrix of {p.shape[0]} × {p.shape[1]} numbers for it")
        return values[p]

    def total(parts: list[Any]) -> Any:
        first, *rest = map(value, parts)
        for part in rest:
            first = first + part
        return first

    def compute(e: MatrixExpr) -> Any:
        match e:
            case Parameter():
                return parameter(e)
            case MatAdd():
                return total(list(e.args))
            case MatMul():
                coefficient, factors = e.as_coeff_matrices()
                result = value(factors[-1])
                for factor in reversed(factors[:-1]):
                    result = arithmetic.multiply(value(factor), result)
                return result if coefficient == 1 else arithmetic.scale(coefficient, result)
            case Transpose():
                return arithmetic.transpose(value(e.arg))
            case Activation():
                return arithmetic.activations[e.order](value(e.argument))
            case Diagonal():
                return arithmetic.diagonal(value(e.vector))
            case HadamardProduct():
                left, right = e.args
                return arithmetic.multiply(arithmetic.diagonal(value(left)), value(right))
            case KroneckerProduct():
                left, right = e.args
                return arithmetic.kronecker(value(left), value(right))
            case Vec():
                return arithmetic.vec(value(e.matrix))
            case IndexedSum():
                terms = [e.at(k) for k in range(number(e.first), number(e.last) + 1)]
                return total(terms) if terms else arithmetic.zeros(*map(number, e.shape))
            case Identity():
                return arithmetic.identity(number(e.shape[0]))
            case ZeroMatrix():
                return arithmetic.zeros(*map(number, e.shape))
        raise SymbolicError(f"{e} ({type(e).__name__}) can't be evaluated")

    def value(e: MatrixExpr) -> Any:
        if e not in seen:
            seen[e] = compute(e)
        return seen[e]

    return value(expression)
