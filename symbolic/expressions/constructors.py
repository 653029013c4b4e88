"""Construct the expressions with which a user writes a layer: matrices, vectors, held parameters, activations."""

import re
from collections.abc import Callable
from typing import Any

from sympy import MatrixExpr, Symbol, symbols

from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import Index, IndexedSum
from symbolic.expressions.matrix import UnitMatrix
from symbolic.expressions.operand import operand
from symbolic.expressions.operations import Diagonal, Hadamard, Kronecker, Vec
from symbolic.expressions.parameter import GREEK, Held, Ones, Parameter, checked_shape, latin
from symbolic.expressions.scalar import Entry


def sizes(names: str) -> tuple[Symbol, ...]:
    """Return symbols for sizes: whole numbers from 1 on.

    Args:
        names: their names, with blanks between them.

    Example:
        >>> tokens, features = sizes("N M")
        >>> print(matrix("W", features, features).shape)
        (M, M)
    """
    return tuple(symbols(names.split(), integer=True, positive=True))


def _matrix(value: Any, where: str) -> MatrixExpr:
    """Return a matrix expression, or raise that something else was given."""
    if not isinstance(operand(value), MatrixExpr):
        raise SymbolicError(f"{where} takes a matrix expression, and {value!r} is none")
    return value


def letter_of(letter: str) -> str:
    """Return a letter as it is kept: a Greek one by its name."""
    plain = latin(str(letter))
    if not re.fullmatch("[A-Za-z]+'*", plain) or (plain != letter and plain.rstrip("'") not in GREEK):
        raise SymbolicError(
            f"{letter!r} is no letter: give Latin letters or one Greek letter, with primes, and count by indices,"
            " matrix('W', rows, columns, 1)"
        )
    return plain


def matrix(letter: str, rows: Any, columns: Any, *indices: Any) -> Parameter:
    """Return a constant matrix: a weight.

    Args:
        letter: its letter.
        rows: number of rows.
        columns: number of columns.
        indices: further indices, such as a head.
    """
    return Parameter(letter_of(letter), indices, rows, columns)


def vector(letter: str, rows: Any, *indices: Any) -> Parameter:
    """Return a constant vector: a bias.

    Args:
        letter: its letter.
        rows: its length.
        indices: further indices.
    """
    return Parameter(letter_of(letter), indices, rows, 1)


def held(letter: str, rows: Any, columns: Any = 1, *indices: Any) -> Held:
    """Return a held parameter: it depends on the input and is treated as a constant, with its value on this input.

    An attention pattern, a norm's scale and a gate are held.

    Args:
        letter: its letter.
        rows: number of rows.
        columns: number of columns.
        indices: further indices, such as a head.
    """
    return Held(letter_of(letter), indices, rows, columns)


def scalar(letter: str, *indices: Any) -> Entry:
    """Return a constant number, such as the `α` of `α x`.

    Args:
        letter: its letter.
        indices: further indices, such as a head.

    Example:
        >>> d, = sizes("d")
        >>> print(scalar("alpha") * matrix("A", d, d))
        α A
    """
    return Entry(Parameter(letter_of(letter), indices, 1, 1), 0, 0)


def held_scalar(letter: str, *indices: Any) -> Entry:
    """Return a held number: it depends on the input and is treated as a constant, with its value on this input.

    Args:
        letter: its letter.
        indices: further indices.
    """
    return Entry(Held(letter_of(letter), indices, 1, 1), 0, 0)


def ones(size: Any) -> Ones:
    """Return the vector of ones, with which a bias reaches every token: `1_N bᵀ`.

    Args:
        size: its length.
    """
    size, _ = checked_shape("a vector of ones", size, 1)
    return Ones("1", (size,), size, 1)


def activation(pre_activation: MatrixExpr, name: str = "σ") -> Activation:
    """Return `σ(z)`, entry by entry.

    Args:
        pre_activation: `z`.
        name: the function's name, where there are several.
    """
    if not re.fullmatch(r"[^\W_]+(-[^\W_]+)*", name):
        raise SymbolicError(f"a function is called {name!r}: give a word of letters and digits, with hyphens")
    return Activation(_matrix(pre_activation, "an activation"), 0, name)


def diag(entries: MatrixExpr) -> Diagonal:
    """Return the square matrix with a vector on its diagonal.

    Args:
        entries: the vector.
    """
    return Diagonal(_matrix(entries, "diag"))


def vec(of: MatrixExpr) -> Vec:
    """Return the entries of a matrix, row by row, as a vector.

    Args:
        of: the matrix.
    """
    return Vec(_matrix(of, "vec"))


def kronecker(left: MatrixExpr, right: MatrixExpr) -> Kronecker:
    """Return `left ⊗ right`.

    Args:
        left: a matrix.
        right: a matrix.
    """
    return Kronecker(_matrix(left, "a Kronecker product"), _matrix(right, "a Kronecker product"))


def hadamard(left: MatrixExpr, right: MatrixExpr) -> Hadamard:
    """Return `left ⊙ right`, the product entry by entry.

    Args:
        left: a matrix.
        right: a matrix of the same shape.
    """
    return Hadamard(_matrix(left, "a product entry by entry"), _matrix(right, "a product entry by entry"))


def summed(summand: Callable[[Symbol], MatrixExpr], first: Any, last: Any, index: str = "h") -> IndexedSum:
    """Return a sum over heads, shifts or experts, whose number may be a symbol.

    Args:
        summand: a function of the index.
        first: its first value.
        last: its last value.
        index: the letter that it is printed with.

    Example:
        >>> N, M, heads = sizes("N M n")
        >>> x = matrix("x", N, M)
        >>> print(summed(lambda h: held("H", N, N, h) * x * matrix("V", M, M, h), 1, heads))
        Σ[h=1..n] Hₕ x Vₕ
    """
    bound = Index(index, integer=True)
    body = _matrix(summand(bound), "a sum")
    if index in {symbol.name for part in body.atoms(IndexedSum) for symbol in part.index.atoms(Symbol)}:
        raise SymbolicError(f"the index {index} counts a sum inside this one too: give one of them another, index='k'")
    return IndexedSum(body, bound, first, last)


def identity(size: Any) -> UnitMatrix:
    """Return the identity.

    Args:
        size: its number of rows.
    """
    return UnitMatrix(checked_shape("the identity", size, size)[0])
