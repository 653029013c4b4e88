"""A normal form of matrix expressions, which decides whether two of them are equal.

An expression becomes a sum of words with every product distributed over every sum. If two have the same words, they are
equal for all matrices, all sizes and every activation function; no floating point is involved.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from sympy import Expr, HadamardProduct, Identity, Integer, KroneckerProduct, MatrixExpr, S, Transpose, ZeroMatrix
from sympy.matrices.expressions import MatAdd, MatMul, MatPow

from symbolic.algebra import MatrixProduct, check_product, check_sum
from symbolic.definitions import Bounds, Definition, lookup
from symbolic.errors import ShapeMismatch, SymbolicError
from symbolic.operations import BOUND, Activation, Diagonal, IndexedSum, Vec
from symbolic.symbols import Parameter
from symbolic.words import (
    NormalForm,
    Shape,
    Word,
    atom_of,
    joined,
    kronecker_word,
    parameter_atom,
    transposed,
    vec_form,
)


class Normaliser:
    """Normal forms under the same definitions, which share what they have in common.

    Args:
        definitions: what parameters stand for, and hypotheses, tried in this order.
    """

    def __init__(self, definitions: Iterable[Definition] = ()) -> None:
        self.definitions = tuple(definitions)
        self.seen: dict[Any, NormalForm] = {}
        self.open: set[Parameter] = set()  # whose definitions are being put in
        self.shapes: dict[tuple[str, Any], Parameter] = {}

    def form(self, expression: MatrixExpr, bounds: Bounds | None = None) -> NormalForm:
        """Return the normal form of an expression.

        Args:
            expression: a matrix expression.
            bounds: the largest value of each bound index around it.
        """
        bounds = bounds or {}
        key = (expression, tuple(bounds.items()))
        if key not in self.seen:
            self.seen[key] = self._form(expression, bounds)
        return self.seen[key]

    def _form(self, expression: MatrixExpr, bounds: Bounds) -> NormalForm:
        match expression:
            case Parameter():
                return self._parameter(expression, bounds)
            case Identity():
                return NormalForm(expression.shape, {(): S.One})
            case ZeroMatrix():
                return NormalForm(expression.shape, {})
            case MatAdd():
                return self._sum([self.form(argument, bounds) for argument in expression.args], expression.args)
            case MatMul():
                return self._product(expression, bounds)
            case MatPow() if expression.exp.is_Integer and expression.exp > 0:
                return self.form(MatrixProduct(*[expression.base] * int(expression.exp)), bounds)
            case Transpose():
                inner = self.form(expression.arg, bounds)
                return NormalForm(inner.shape[::-1], {transposed(word): c for word, c in inner.words.items()})
            case Activation():
                inner = self.form(expression.argument, bounds)
                atom = atom_of("activation", (inner, expression.order), inner.shape)
                return NormalForm(inner.shape, {(atom,): S.One})
            case Diagonal():
                return self._diagonal(self.form(expression.vector, bounds), expression.shape)
            case HadamardProduct():
                left, *rest = expression.args
                right = rest[0] if len(rest) == 1 else HadamardProduct(*rest)
                return self.form(MatMul(Diagonal(left), right), bounds)
            case KroneckerProduct():
                left, *rest = expression.args
                right = rest[0] if len(rest) == 1 else KroneckerProduct(*rest)
                return self._kronecker(self.form(left, bounds), self.form(right, bounds), expression.shape)
            case Vec():
                return vec_form(self.form(expression.matrix, bounds))
            case IndexedSum():
                return self._indexed_sum(expression, bounds)
        raise SymbolicError(
            f"{expression} ({type(expression).__name__}) has no normal form: build it from parameters, sums, products,"
            " transposes, Kronecker products, vec, diag, activations and indexed sums"
        )

    def _parameter(self, parameter: Parameter, bounds: Bounds) -> NormalForm:
        first = self.shapes.setdefault((parameter.letter, (parameter.lower, parameter.upper)), parameter)
        if first.shape != parameter.shape:
            raise ShapeMismatch(
                f"{parameter} is used with two shapes, {first.shape[0]} × {first.shape[1]} and {parameter.shape[0]} ×"
                f" {parameter.shape[1]}: give one of them another letter or index"
            )
        meaning = lookup(parameter, self.definitions, bounds)
        if meaning is None:
            return NormalForm(parameter.shape, {(parameter_atom(parameter),): S.One})
        check_sum(parameter, meaning)
        if parameter in self.open:
            raise SymbolicError(f"{parameter} is defined by itself: define it by parameters of earlier layers only")
        self.open.add(parameter)
        try:
            return self.form(meaning, bounds)
        finally:
            self.open.remove(parameter)

    @staticmethod
    def _sum(forms: list[NormalForm], expressions: tuple[MatrixExpr, ...]) -> NormalForm:
        words: dict[Word, Expr] = {}
        for form, expression in zip(forms, expressions, strict=True):
            check_sum(expressions[0], expression)
            for word, coefficient in form.words.items():
                words[word] = words.get(word, S.Zero) + coefficient
        return NormalForm(forms[0].shape, words)

    def _product(self, expression: MatMul, bounds: Bounds) -> NormalForm:
        coefficient, factors = expression.as_coeff_matrices()
        for left, right in pairwise(factors):
            check_product(left, right)
        shape = (factors[0].shape[0], factors[-1].shape[1])
        words: dict[Word, Expr] = {(): coefficient}
        for form in (self.form(factor, bounds) for factor in reversed(factors)):
            product: dict[Word, Expr] = {}
            for right, c in words.items():
                for left, a in form.words.items():
                    word = joined(left, right)
                    product[word] = product.get(word, S.Zero) + a * c
            words = product
        return NormalForm(shape, words)

    @staticmethod
    def _diagonal(vector: NormalForm, shape: Shape) -> NormalForm:
        words: dict[Word, Expr] = {}
        for word, coefficient in vector.words.items():
            atom = atom_of("diagonal", (NormalForm(vector.shape, {word: S.One}),), shape)
            words[(atom,)] = coefficient
        return NormalForm(shape, words)

    @staticmethod
    def _kronecker(left: NormalForm, right: NormalForm, shape: Shape) -> NormalForm:
        words: dict[Word, Expr] = {}
        for l, a in left.words.items():
            for r, b in right.words.items():
                word = kronecker_word(l, r, left.shape, right.shape)
                words[word] = words.get(word, S.Zero) + a * b
        return NormalForm(shape, words)

    def _indexed_sum(self, expression: IndexedSum, bounds: Bounds) -> NormalForm:
        first, last = expression.first, expression.last
        offset, base = last.as_coeff_Add()
        if base == 0 and first.is_Integer:
            start, base = int(first), None
        else:
            start, offset = 1, max(int(offset), 0)
            base = last - offset
        values = [base + k if base is not None else Integer(k) for k in range(start, int(offset) + 1)]
        parts = [expression.at(value) for value in values]
        forms = [self.form(part, bounds) for part in parts]
        if base is not None:
            index = BOUND[len(bounds)]
            body = self.form(expression.at(index), {**bounds, index: base})
            words: dict[Word, Expr] = {}
            for word, coefficient in body.words.items():
                if coefficient.has(index):
                    raise SymbolicError(
                        f"{expression} has a coefficient in its index: put it in a parameter of its own"
                    )
                words[(atom_of("sum", (word, index, first, base), body.shape),)] = coefficient
            forms.append(NormalForm(body.shape, words))
            parts.append(expression)
        if not forms:
            return NormalForm(expression.shape, {})
        return self._sum(forms, tuple(parts))


def normal_form(expression: MatrixExpr, definitions: Iterable[Definition] = ()) -> NormalForm:
    """Return the normal form of an expression.

    Args:
        expression: a matrix expression.
        definitions: what its parameters stand for, and hypotheses, tried in this order.

    Raises:
        ShapeMismatch: if factors don't multiply, summands don't add, or a symbol has two shapes.
        SymbolicError: if it contains something that has no normal form.

    Example:
        >>> from sympy import symbols
        >>> d = symbols("d", integer=True, positive=True)
        >>> A, B = Parameter("A", (), d, d), Parameter("B", (), d, d)
        >>> print(normal_form((A + B) * (A - B)).expression())
        A A + B A − A B − B B
    """
    return Normaliser(definitions).form(expression)


def equal(left: MatrixExpr, right: MatrixExpr, definitions: Iterable[Definition] = ()) -> bool:
    """Tell whether two expressions are equal for all values of their symbols and every activation function.

    Args:
        left: one expression.
        right: the other expression.
        definitions: what their parameters stand for, and hypotheses.

    Raises:
        ShapeMismatch: if they don't have the same shape, or one of them has none.

    Example:
        >>> from sympy import symbols
        >>> d = symbols("d", integer=True, positive=True)
        >>> A, B, x = Parameter("A", (), d, d), Parameter("B", (), d, d), Parameter("x", (), d, 1)
        >>> equal(Activation((A + B) * x), Activation(B * x + A * x)), equal(A * B * x, B * A * x)
        (True, False)
    """
    check_sum(left, right)
    normaliser = Normaliser(definitions)
    return normaliser.form(left) == normaliser.form(right)
