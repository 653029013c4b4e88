"""List the letters of the closed form, ours and the papers', with their meanings."""

from typing import Any, NamedTuple

from sympy import MatrixExpr

from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.theorems.residual_stack import ResidualStack, i, j

_HAT = "\u0302"


class Meaning(NamedTuple):
    """A letter of the closed form.

    Args:
        ours: the letter here, which stands for one thing.
        papers: the letter in the papers, which there stands for a layer's own parameter too; the same with a hat.
        words: its meaning.
    """

    ours: Parameter
    papers: Parameter
    words: str


def _updated(parameter: MatrixExpr, upper: tuple[Any, ...] = ()) -> Parameter:
    letter, (rows, columns) = parameter.letter.rstrip("'"), parameter.shape
    return Parameter(f"{letter}{_HAT}'", parameter.lower, rows, columns, upper)


def notation(stack: ResidualStack | None = None) -> tuple[Meaning, ...]:
    r"""Return the letters of the unrolled form with the papers' own and their meaning.

    The papers have one symbol for a layer's own parameter and for the updated one; here the updated one has a hat.

    Args:
        stack: the symbols.

    Example:
        >>> from symbolic.expressions.latex import typeset
        >>> print(notation()[0].ours, "is", typeset(notation()[0].papers))
        Pᵢ is \widehat{\mathbf{W}}'_{i,1}

    Source: Wang & Li, Eq. 11, 12, 33 and 34.
    """
    s = stack or ResidualStack()
    rows = [
        Meaning(s.P(i), _updated(s.W(i, 1)), "carries the input to layer i"),
        Meaning(s.q(i), _updated(s.b(i, 3)), "the biases, carried to layer i"),
    ]
    for t in s.terms:
        rows += [
            Meaning(s.B(j, t), _updated(s.W(j, 2, t)), "carries the input into an activation of layer j"),
            Meaning(s.c(j, t), _updated(s.b(j, 2, t)), "the bias in it, with all earlier terms"),
            Meaning(s.C(j, i, t), _updated(s.W(j, 3, t), (i,)), "carries an activation of layer j to layer i"),
        ]
    return tuple(rows)


def in_the_papers_letters(derivation: Derivation, stack: ResidualStack | None = None) -> Derivation:
    r"""Return a derivation with the papers' letters for the parameters of the unrolled form, with a hat.

    Args:
        derivation: the derivation.
        stack: the symbols that it is written in.

    Example:
        >>> from symbolic.expressions.latex import typeset
        >>> from symbolic.theorems.closed_form import prove
        >>> print(typeset(in_the_papers_letters(prove()).steps[1].right))
        \widehat{\mathbf{W}}'_{i,1} \mathbf{x}'_{0} + \widehat{\mathbf{b}}'_{i,3} + \mathrm{UAT}^{R}_{i}
    """
    theirs = {meaning.ours.letter: meaning.papers for meaning in notation(stack)}

    def renamed(parameter: Parameter) -> Parameter:
        if parameter.letter not in theirs:
            return parameter
        like = theirs[parameter.letter]
        lower, (rows, columns) = (*parameter.lower[:1], like.lower[1], *parameter.lower[1:]), parameter.shape
        return Parameter(like.letter, lower, rows, columns, parameter.upper)

    return derivation.with_parameters(renamed)
