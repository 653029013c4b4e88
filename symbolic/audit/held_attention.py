"""Decide that attention is one matrix once its pattern is held, and that this matrix moves with the input."""

from functools import cache

from sympy import Expr, exp, log, sqrt

from symbolic.audit.checks import both, chain, derived
from symbolic.audit.counterexample import Outcome
from symbolic.audit.heads import JOINED, OUTPUT, W_HVO, X
from symbolic.expressions.vec import Vec
from symbolic.vectorisation.attention import attention_derivation


def pattern_moves() -> Outcome:
    """Compare attention of 2x with twice attention of x, at two tokens 0 and t with exp(t²) = 2, all weights 1."""
    t = sqrt(log(2))

    def second(x: Expr) -> Expr:
        weight = exp(x**2)  # of token 2 on itself; on token 1, which is 0, the weight is 1
        return x * weight / (1 + weight)

    once, twice = 2 * second(t) / t, second(2 * t) / t
    return Outcome(
        once == twice,
        "one head, all weights 1, tokens 0 and t with exp(t²) = 2: MHA(2x) is"
        f" {twice} t and 2 MHA(x) is {once} t at token 2, so no fixed matrix gives MHA",
    )


@cache
def attention_moves() -> Outcome:
    """Decide that attention with its pattern held is a matrix times `x'`, and say that the matrix moves with `x'`."""
    held = chain(Vec(JOINED * OUTPUT), [W_HVO * Vec(X)])
    return Outcome(held.holds, f"with the pattern held: {held.how}; the matrix depends on x: {pattern_moves().how}")


@cache
def held_pattern() -> Outcome:
    """Decide that attention is one matrix once its pattern is held, for all sizes and entry by entry."""
    return both(attention_moves(), derived(attention_derivation(), "attention as one Kronecker sum"))
