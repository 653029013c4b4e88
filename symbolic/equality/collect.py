"""Sort an expression by a vector, which reads off the parameters of Eq. 20."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sympy import Expr, MatrixExpr

from symbolic.equality.atoms import ActivationAtom, DiagonalAtom
from symbolic.equality.definition import Definition
from symbolic.equality.form import NormalForm
from symbolic.equality.linear_atoms import ParameterAtom
from symbolic.equality.normal_form import normal_form
from symbolic.equality.word import Atom, Shape, Word
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Parameter


def moves(expression: Expr, x: Parameter) -> bool:
    """Tell whether a vector, or an activation, occurs anywhere in an expression, in its coefficients too."""
    return expression.has(x) or expression.has(Activation)


def _held(atoms: Sequence[Atom]) -> str:
    """Return the held parameter to write for some factors of a word."""
    shape = (atoms[0].shape[0], atoms[-1].shape[1])
    written = Word(tuple(atoms), shape).expression()
    if len(atoms) == 1 and isinstance(atoms[0], DiagonalAtom):
        return f"diag(held('g', {shape[0]})) for {written}"
    return f"held('H', {shape[0]}, {shape[1]}) for {written}"


def nonlinearity_message(word: Word, x: Parameter) -> str:
    """Return the error message for a word that isn't linear in a vector and its activations: the factors to hold."""
    # The last factor that is the vector, or an activation, flows; whatever else moves with it is held.
    suggestions = [f"held_scalar('a') for {n}" for scalar in word.scalars if moves(n := scalar.number(), x)]
    moving = [k for k, atom in enumerate(word.atoms) if moves(atom.expression, x)]
    flowing = [k for k in moving if isinstance(word.atoms[k], ParameterAtom | ActivationAtom)][-1:]
    for flow in flowing:
        before, after = ([k for k in moving if k < flow], [k for k in moving if k > flow])
        suggestions += [_held(word.atoms[places[0] : places[-1] + 1]) for places in (before, after) if places]
    if not suggestions:
        return (
            f"{word.expression()} has {x} where it can't flow, transposed or in a factor of its own: hold what it is in"
        )
    return (
        f"{word.expression()} isn't linear in {x}, which is in it more than once: the last factor flows, and what"
        f" multiplies it has to be held, as a parameter of its own: write {', '.join(suggestions)}"
    )


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
    # The vec of a column is itself, with the matrices and numbers that act from the right brought in front.
    for word, coefficient in (form.vec() if form.shape[1] == 1 else form).words.items():
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


class CollectedStreams(NamedTuple):
    """An expression sorted by several vectors: `Σ path x + offset + Σ outer σ(…)`.

    Args:
        paths: what each vector is multiplied by.
        offset: what contains neither a vector nor an activation.
        terms: the nonlinear terms.
    """

    paths: tuple[MatrixExpr, ...]
    offset: MatrixExpr
    terms: tuple[Term, ...]


def collect_streams(
    expression: MatrixExpr, xs: Sequence[Parameter], using: tuple[Definition, ...] = ()
) -> CollectedStreams:
    """Sort an expression by several vectors.

    Example:
        >>> from sympy import symbols
        >>> d = symbols("d", integer=True, positive=True)
        >>> A, B, x, y = (Parameter(letter, (), d, 1 if letter in "xy" else d) for letter in "ABxy")
        >>> print(*collect_streams(A * x + B * A * y, (x, y)).paths)
        A B A
    """
    first, *others = xs
    whole = collect(expression, first, using)
    paths, offset = [whole.path], whole.offset
    for x in others:
        rest = collect(offset, x)
        paths, offset = [*paths, rest.path], rest.offset
    outer = [(term.outer, term.activation) for term in whole.terms]
    for factor, flowing in (*zip(paths, xs, strict=True), *outer):
        for word in normal_form(factor * flowing).words if any(moves(factor, x) for x in xs) else ():
            moving = next((x for x in xs if moves(_before_last(word).expression(), x)), None)
            if moving is not None:
                raise SymbolicError(nonlinearity_message(word, moving))
    return CollectedStreams(tuple(paths), offset, whole.terms)


def collect(expression: MatrixExpr, x: Parameter, using: tuple[Definition, ...] = ()) -> Collected:
    """Sort an expression by a vector, which reads off the parameters of Eq. 20.

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
