"""Sort an expression by a vector, which reads off the parameters of Eq. 20."""

from typing import Any, NamedTuple

from sympy import Expr, MatrixExpr

from symbolic.equality.atoms import ActivationAtom
from symbolic.equality.definition import Definition
from symbolic.equality.form import NormalForm
from symbolic.equality.linear_atoms import ParameterAtom
from symbolic.equality.nonlinearity import moves, nonlinearity_message
from symbolic.equality.normal_form import normal_form
from symbolic.equality.word import Shape, Word
from symbolic.errors import SymbolicError
from symbolic.expressions.parameter import Parameter


class Term(NamedTuple):
    """One nonlinear term of a collected form, `outer σ(inner x + bias)`.

    Args:
        outer: what the activation is multiplied by.
        inner: what the variable is multiplied by inside it.
        bias: the rest inside it.
        activation: the whole activation.
    """

    outer: MatrixExpr
    inner: MatrixExpr
    bias: MatrixExpr
    activation: MatrixExpr


class Collected(NamedTuple):
    """An expression sorted by a vector: `path x + offset + Σ outer σ(inner x + bias)`.

    Args:
        path: what the vector is multiplied by.
        offset: what contains neither the vector nor an activation.
        terms: the nonlinear terms.
    """

    path: MatrixExpr
    offset: MatrixExpr
    terms: tuple[Term, ...]


def _expression(words: dict[Word, Expr], shape: Shape) -> MatrixExpr:
    return NormalForm(shape, words.items()).expression()


def _before_last(word: Word) -> Word:
    return Word(word.atoms[:-1], (word.shape[0], word.atoms[-1].shape[0]), word.scalars)


def _split(form: NormalForm, x: Parameter) -> tuple[MatrixExpr, MatrixExpr, dict[Word, Expr]]:
    """Return the matrix at `x`, what contains neither `x` nor ends with an activation, and the rest."""
    path: dict[Word, Expr] = {}
    offset: dict[Word, Expr] = {}
    rest: dict[Word, Expr] = {}
    for word, coefficient in form.words.items():
        match word.atoms[-1:]:
            case (ParameterAtom(parameter=parameter),) if parameter == x:
                factor = _before_last(word)
                path[factor] = coefficient
            case (ActivationAtom(),):
                factor = _before_last(word)
                rest[word] = coefficient
            case _:
                factor = word
                offset[word] = coefficient
        if moves(factor.expression(), x):
            raise SymbolicError(nonlinearity_message(word, x))
    return _expression(path, (form.shape[0], x.shape[0])), _expression(offset, form.shape), rest


def collect(expression: MatrixExpr, x: Parameter, using: tuple[Definition, ...] = ()) -> Collected:
    """Sort an expression by a vector, which reads off the parameters of Eq. 20.

    Args:
        expression: a vector.
        x: the vector to sort by.
        using: definitions to apply first.

    Raises:
        SymbolicError: if the vector or an activation stands anywhere but at the end of a product.

    Example:
        >>> from symbolic.theorems.residual_stack import ResidualStack
        >>> stack = ResidualStack()
        >>> print(collect(stack.general_term(1), stack.x(0)).terms[0].inner)
        W′₁,₂
    """
    form = normal_form(expression, using)
    path, offset, rest = _split(form, x)
    by_activation: dict[Any, dict[Word, Expr]] = {}
    for word, coefficient in rest.items():
        by_activation.setdefault(word.atoms[-1], {})[_before_last(word)] = coefficient
    terms = []
    for atom, words in by_activation.items():
        inner, bias, inside = _split(atom.argument, x)
        size = atom.shape[0]
        if inside:
            bias = bias + _expression(inside, atom.shape)
        terms.append(Term(_expression(words, (form.shape[0], size)), inner, bias, atom.expression))
    return Collected(path, offset, tuple(terms))
