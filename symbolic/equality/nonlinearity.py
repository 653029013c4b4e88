"""Explain why an expression isn't affine in the stream: the factors that have to be held."""

from collections.abc import Sequence

from sympy import Expr

from symbolic.equality.atoms import ActivationAtom, DiagonalAtom
from symbolic.equality.linear_atoms import ParameterAtom
from symbolic.equality.word import Atom, Word
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Parameter


def moves(expression: Expr, x: Parameter) -> bool:
    """Tell whether a vector, or an activation, occurs anywhere in an expression, in its coefficients too.

    Args:
        expression: a matrix expression or a number.
        x: the vector.
    """
    return expression.has(x) or expression.has(Activation)


def _held(atoms: Sequence[Atom]) -> str:
    """Return the held parameter to write for some factors of a word."""
    shape = (atoms[0].shape[0], atoms[-1].shape[1])
    written = Word(tuple(atoms), shape).expression()
    if len(atoms) == 1 and isinstance(atoms[0], DiagonalAtom):
        return f"diag(held('g', {shape[0]})) for {written}"
    return f"held('H', {shape[0]}, {shape[1]}) for {written}"


def nonlinearity_message(word: Word, x: Parameter) -> str:
    """Return the error message for a word that isn't linear in a vector and its activations: the factors to hold.

    The last factor that is the vector, or an activation, flows; whatever else moves with it is held.

    Args:
        word: the word.
        x: the vector.
    """
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
