"""Prove an equation for every `i` by induction."""

from sympy import Integer

from symbolic.equality.definition import Definition
from symbolic.expressions.parameter import i
from symbolic.proof.step import Step, equality, induction_hypothesis


def claim(
    at: Definition, base: str, step: str, *rules: Definition, start: tuple[Definition, ...] = (), where: str = ""
) -> tuple[Step, Step, Step]:
    """Return the induction for an equation at `i`: its base, the hypothesis and the step.

    Args:
        at: the equation, at `i` alone.
        base: why it holds at 0.
        step: why it holds at `i + 1`.
        rules: the definitions that both rest on.
        start: further definitions for the base.
        where: the range of its other indices.
    """
    first, following = ((at.left.xreplace({i: k}), at.right.xreplace({i: k})) for k in (Integer(0), i + 1))
    return (
        equality(*first, f"base: {base}", (*start, *rules)),
        induction_hypothesis(at.left, at.right, "induction hypothesis" + (f", for {where}" if where else "")),
        equality(*following, f"step: {step}", (at, *rules)),
    )
