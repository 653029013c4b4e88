"""Compute what each step of a derivation holds under: what it used, and nothing before it states."""

from collections.abc import Iterable

from sympy import Basic, sstr

from symbolic.expressions.activation import Activation
from symbolic.expressions.latex import escaped, typeset
from symbolic.proof.step import Equation, Step

Condition = Equation | str
"""An equation between parameters, or a sentence."""


def conditions_of(
    steps: Iterable[Step], before: Iterable[Step], known: Iterable[Equation]
) -> tuple[tuple[Condition, ...], ...]:
    """Return the conditions of every step: the equations that it used and that stand nowhere before it.

    A definition may stand anywhere. What rests on an equation with conditions has these too.

    Args:
        steps: the steps, in order.
        before: equations that are stated before them.
        known: equations that are stated before them in words.
    """
    steps = tuple(steps)
    definitions = (step for step in steps if step.relation == ":=")
    stated: dict[Equation, tuple[Condition, ...]] = dict.fromkeys(known, ())
    for step in (*before, *definitions):
        stated |= dict.fromkeys((Equation(step.left, step.right), *step.states), ())
    left, conditions = None, []
    for step in steps:
        left = left if step.left is None else step.left
        under: dict[Condition, None] = {}
        for used in step.using:
            if used.left != used.right:
                under |= dict.fromkeys(stated.get(used, stated.get(Equation(used.right, used.left), (used,))))
        for function in sorted({part.function for part in _activations(step) if part.order}):
            under[f"{function} has a derivative"] = None
        conditions.append(tuple(under))
        if step.verified is not False and step.relation in ("=", ":="):
            for equation in (Equation(left, step.right), *step.states):
                stated.setdefault(equation, tuple(under))
    return tuple(conditions)


def _activations(step: Step) -> Iterable[Activation]:
    return (part for side in (step.left, step.right) if isinstance(side, Basic) for part in side.atoms(Activation))


def in_latex(conditions: Iterable[Condition]) -> str:
    """Return conditions as words and formulas of a sentence in LaTeX.

    Args:
        conditions: the conditions.
    """
    return _listed(
        [escaped(c) if isinstance(c, str) else f"${typeset(c.left)} = {typeset(c.right)}$" for c in conditions]
    )


def in_words(conditions: Iterable[Condition]) -> str:
    """Return conditions as words of a sentence.

    Args:
        conditions: the conditions.
    """
    return _listed([c if isinstance(c, str) else f"{sstr(c.left)} = {sstr(c.right)}" for c in conditions])


def _listed(words: list[str]) -> str:
    *first, last = words or [""]
    return f"{', '.join(first)} and {last}" if first else last
