"""A normal form of matrix expressions, which decides whether two of them are equal.

An expression becomes a sum of words with every product distributed over every sum. If two have the same words, they are
equal for all matrices, all sizes and every activation function; no floating point is involved.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from sympy import Expr, HadamardProduct, Identity, KroneckerProduct, MatrixExpr, S, Transpose, ZeroMatrix
from sympy.matrices.expressions import MatAdd, MatMul, MatPow

from symbolic.equality.definition import Bounds, Definition, lookup, nonnegative
from symbolic.equality.words import (
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
from symbolic.errors import ShapeMismatch, SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.diagonal import Diagonal
from symbolic.expressions.indexed_sum import IndexedSum, bound_index
from symbolic.expressions.matrix import MatrixProduct, check_product, check_sum
from symbolic.expressions.parameter import Parameter
from symbolic.expressions.vec import Vec

_ENDLESS = 150  # definitions put in one another


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
            bounds: the first and the last value of each bound index around it.
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
                return NormalForm(expression.shape, [((), S.One)])
            case ZeroMatrix():
                return NormalForm(expression.shape, [])
            case MatAdd():
                return self._sum([self.form(argument, bounds) for argument in expression.args], expression.args)
            case MatMul():
                return self._product(expression, bounds)
            case MatPow() if expression.exp.is_Integer and expression.exp > 0:
                return self.form(MatrixProduct(*[expression.base] * int(expression.exp)), bounds)
            case Transpose():
                inner = self.form(expression.arg, bounds)
                return NormalForm(inner.shape[::-1], ((transposed(word), c) for word, c in inner.words.items()))
            case Activation():
                inner = self.form(expression.argument, bounds)
                atom = atom_of("activation", (inner, expression.order, expression.function), inner.shape)
                return NormalForm(inner.shape, [((atom,), S.One)])
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
            return NormalForm(parameter.shape, [((parameter_atom(parameter),), S.One)])
        check_sum(parameter, meaning)
        if parameter in self.open or len(self.open) > _ENDLESS:
            raise SymbolicError(f"{parameter} is defined by itself: define it by parameters of earlier layers only")
        self.open.add(parameter)
        try:
            return self.form(meaning, bounds)
        finally:
            self.open.remove(parameter)

    @staticmethod
    def _sum(forms: list[NormalForm], expressions: tuple[MatrixExpr, ...]) -> NormalForm:
        for expression in expressions:
            check_sum(expressions[0], expression)
        return NormalForm(forms[0].shape, (pair for form in forms for pair in form.words.items()))

    def _product(self, expression: MatMul, bounds: Bounds) -> NormalForm:
        coefficient, factors = expression.as_coeff_matrices()
        for left, right in pairwise(factors):
            check_product(left, right)
        *before, last = (self.form(factor, bounds) for factor in factors)
        product = NormalForm(last.shape, ((word, coefficient * c) for word, c in last.words.items()))
        for form in reversed(before):
            pairs = product_of_words(form.words, product.words)
            words = ((joined(left, right), c) for left, right, c in pairs)
            product = NormalForm((form.shape[0], last.shape[1]), words)
        return product

    @staticmethod
    def _diagonal(vector: NormalForm, shape: Shape) -> NormalForm:
        def diagonal(word: Word) -> Word:
            return (atom_of("diagonal", (NormalForm(vector.shape, [(word, S.One)]),), shape),)

        return NormalForm(shape, ((diagonal(word), c) for word, c in vector.words.items()))

    @staticmethod
    def _kronecker(left: NormalForm, right: NormalForm, shape: Shape) -> NormalForm:
        pairs = product_of_words(left.words, right.words)
        return NormalForm(shape, ((kronecker_word(l, r, left.shape, right.shape), c) for l, r, c in pairs))

    def _indexed_sum(self, expression: IndexedSum, bounds: Bounds) -> NormalForm:
        first, last = expression.first, expression.last
        if first.is_Integer and last.is_Integer:
            terms = [expression.at(k) for k in range(int(first), int(last) + 1)]
            if not terms:
                return NormalForm(expression.shape, [])
            return self._sum([self.form(term, bounds) for term in terms], tuple(terms))
        # The last terms are taken out where there are some for all values of the symbols, each of which is at least 0.
        offset = last.as_coeff_Add()[0]
        taken = int(offset) if first.is_Integer and first <= 1 and offset > 0 and nonnegative(last) else 0
        base = last - taken
        index = bound_index(len(bounds))
        body = self.form(expression.at(index), {**bounds, index: (first, base)})
        if any(coefficient.has(index) for coefficient in body.words.values()):
            raise SymbolicError(f"{expression} has a coefficient in its index: put it in a parameter of its own")
        words = ((atom_of("sum", (word, index, first, base), body.shape),) for word in body.words)
        rest = NormalForm(body.shape, zip(words, body.words.values(), strict=True))
        terms = [expression.at(base + k) for k in range(1, taken + 1)]
        return self._sum([*(self.form(term, bounds) for term in terms), rest], (*terms, expression))


def product_of_words(left: dict[Word, Expr], right: dict[Word, Expr]) -> Iterator[tuple[Word, Word, Expr]]:
    """Yield all pairs of words of two sums, with the product of their coefficients.

    Args:
        left: words and coefficients.
        right: words and coefficients.
    """
    for r, b in right.items():
        for l, a in left.items():
            yield l, r, a * b


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
    """Tell whether two expressions are shown to be equal for all values of their symbols and every activation function.

    True is a proof. False says that the normal forms differ: among sums, products, transposes and activations of
    matrices the two are then different; with `diag`, Kronecker products and symbolic sums they may be equal all
    the same.

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
