"""Decide whether two matrix expressions are equal, by their normal forms."""

from collections.abc import Iterable
from typing import NamedTuple

from sympy import MatrixExpr

from symbolic.equality.definition import Definition
from symbolic.equality.form import NormalForm
from symbolic.equality.normaliser import Normaliser
from symbolic.equality.word import Word
from symbolic.expressions.matrix import MatrixSum, check_sum


def normal_form(expression: MatrixExpr, definitions: Iterable[Definition] = ()) -> NormalForm:
    """Return the normal form of an expression.

    Args:
        expression: a matrix expression.
        definitions: definitions of its parameters, and hypotheses, tried in this order.

    Raises:
        ShapeMismatch: if factors don't multiply, summands don't add, or a symbol has two shapes.
        SymbolicError: if it contains something that has no normal form.

    Example:
        >>> from sympy import Identity, symbols
        >>> from symbolic.expressions.activation import Activation
        >>> from symbolic.expressions.parameter import Parameter
        >>> d = symbols("d", integer=True, positive=True)
        >>> A, B = Parameter("A", (), d, d), Parameter("B", (), d, d)
        >>> print(normal_form((A + B) * (A - B)).expression())
        A A + B A − A B − B B
    """
    return Normaliser(definitions).form(expression)


def equal(left: MatrixExpr, right: MatrixExpr, definitions: Iterable[Definition] = ()) -> bool:
    """Tell whether two expressions are shown to be equal for all values of their symbols and every activation function.

    True is a proof. False says that none was found: products, sums, transposes, `⊗`, `vec`, `diag` and `⊙` are decided
    whichever way they are written, and so are activations of them, but a sum with symbolic bounds counted backwards, by
    strides or over a triangle, coefficients over unlike denominators, and indices that are equal only when they are
    multiplied out may be equal all the same.

    Args:
        left: one expression.
        right: the other expression.
        definitions: definitions of their parameters, relations such as `Qᵀ Q = I`, and hypotheses.

    Raises:
        ShapeMismatch: if they don't have the same shape, or one of them has none.
        SymbolicError: if a relation can't be used as a rule.

    Example:
        >>> from sympy import Identity, symbols
        >>> from symbolic.expressions.activation import Activation
        >>> from symbolic.expressions.parameter import Parameter
        >>> d = symbols("d", integer=True, positive=True)
        >>> A, B, x = Parameter("A", (), d, d), Parameter("B", (), d, d), Parameter("x", (), d, 1)
        >>> equal(Activation((A + B) * x), Activation(B * x + A * x)), equal(A * B * x, B * A * x)
        (True, False)
        >>> equal(A.T * (A * x), x, [Definition(A.T * A, Identity(d))])
        True
    """
    return decide(left, right, definitions).equal


class Decision(NamedTuple):
    """A decision on two expressions.

    Args:
        equal: whether they are shown to be equal.
        used: the definitions, relations and hypotheses that were applied.
    """

    equal: bool
    used: tuple[Definition, ...]


def decide(left: MatrixExpr, right: MatrixExpr, definitions: Iterable[Definition] = ()) -> Decision:
    """Decide whether two expressions are equal, and say which definitions and hypotheses that rests on."""
    check_sum(left, right)
    definitions = tuple(definitions)
    decision = _decided(left, right, definitions)
    symmetric = {definition.symmetrised(): definition for definition in definitions if definition.is_symmetry}
    if decision.equal or not symmetric:
        return decision
    # uᵀ S v = vᵀ S u renames indices, which no rule for products does: a symmetric matrix is half of T + Tᵀ.
    again = _decided(left, right, (*symmetric, *(d for d in definitions if not d.is_symmetry)))
    return Decision(again.equal, tuple(symmetric.get(used, used) for used in again.used))


def _decided(left: MatrixExpr, right: MatrixExpr, definitions: Iterable[Definition]) -> Decision:
    normaliser = Normaliser(definitions)
    same = normaliser.form(left) == normaliser.form(right)
    return Decision(same, tuple(normaliser.used))


def _factored(form: NormalForm) -> MatrixExpr:
    groups: dict[object, list[Word]] = {}
    for word in form.words:
        groups.setdefault(word.atoms[0] if word.atoms else None, []).append(word)
    parts = []
    for first, words in groups.items():
        if first is None or len(words) == 1:
            parts.append(NormalForm(form.shape, [(word, form.words[word]) for word in words]).expression())
            continue
        outer = words[0].atoms[0]
        shape = (outer.shape[1], form.shape[1])
        inner = NormalForm(shape, [(Word(word.atoms[1:], shape, word.scalars), form.words[word]) for word in words])
        parts.append(outer.expression * _factored(inner))
    return MatrixSum(*parts) if parts else form.expression()


def factored(expression: MatrixExpr) -> MatrixExpr:
    """Return an expression multiplied out, and with common left factors taken out again.

    Example:
        >>> from sympy import symbols
        >>> from symbolic.expressions.parameter import Parameter
        >>> d = symbols("d", integer=True, positive=True)
        >>> A, B, x = Parameter("A", (), d, d), Parameter("B", (), d, d), Parameter("x", (), d, 1)
        >>> print(factored(A * B * x + A * x))
        A (B x + x)
    """
    return _factored(normal_form(expression))
