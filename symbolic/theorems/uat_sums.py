"""Prove Lemma 1: a matrix times a sum of the universal approximation theorem is such a sum."""

from itertools import pairwise

from sympy import Abs, Expr, Symbol, symbols

from symbolic.equality.definition import Definition
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.hypotheses import of_a_held_stack
from symbolic.proof.step import Step, continued, equality, let, let_each
from symbolic.theorems.residual_stack import ResidualStack, j


def lemma_1() -> Derivation:
    """Prove Lemma 1: a matrix times a UAT sum is a UAT sum.

    Example:
        >>> lemma_1().verified
        True
    """
    # `β Σ_j α_j σ(W_jᵀ x + b_j) = Σ_j (β α_j) σ(W_jᵀ x + b_j)`, for any number of terms and any sizes.
    n, m, k, r, terms = symbols("n m k r N", integer=True, positive=True)
    alpha, beta = Parameter("alpha", (j,), k, m), Parameter("beta", (), r, k)
    renamed = Parameter("alpha*", (j,), r, m)
    weight, bias, x = Parameter("W", (j,), n, m), Parameter("b", (j,), m, 1), Parameter("x", (), n, 1)
    activation = Activation(weight.T * x + bias)
    scaled = IndexedSum(beta * alpha * activation, j, 1, terms)
    renaming = Definition(renamed, beta * alpha, (j,))
    steps = (
        equality(beta * IndexedSum(alpha * activation, j, 1, terms), scaled, "β multiplied into the sum, Eq. 19"),
        continued(scaled, IndexedSum(renamed * activation, j, 1, terms), "again a UAT sum", (renaming,)),
    )
    given = let(renamed, beta * alpha)
    return Derivation("Lemma 1: a matrix times a UAT sum is a UAT sum", steps, given=(given,))


_RAYS = ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0))


def never_negative(gap: Expr, a: Symbol, b: Symbol) -> bool:
    """Return whether a sum of absolute values of linear terms in `a` and `b` is nonnegative, by eight rays."""
    # Between two neighbouring rays of eight, where no absolute value changes its sign, it is linear, so that its least
    # value is at one of the rays.

    def at(expression: Expr, ray: tuple[int, int]) -> Expr:
        return expression.subs({a: ray[0], b: ray[1]})

    arguments = [size.args[0] for size in gap.atoms(Abs)]
    linear = all(at(t, first) * at(t, second) >= 0 for first, second in pairwise(_RAYS) for t in arguments)
    return bool(linear and not gap.subs({a: 0, b: 0}) and all(at(gap, ray) >= 0 for ray in _RAYS))


def pruning() -> Derivation:
    """Derive the pruning inequality, for a sum and for the unrolled form, held and run again.

    Example:
        >>> pruning().verified
        True
    """
    # With `S_1` the kept terms and `S_2` the dropped ones: `|S_1 − f| < ε + |S_2|`. It needs no limit `S_2 → 0`. In the
    # unrolled form it bounds what is dropped with everything else held; when the pruned network is run again, the later
    # terms move too, by the amount in the last line.
    f, s1, s2 = symbols("f S_1 S_2", real=True)
    epsilon = Symbol("varepsilon", positive=True)
    kept = s1 - f
    a, b = symbols("a b", real=True)
    reverse = never_negative(Abs(a + b) - Abs(Abs(a) - Abs(b)), a, b)
    below = never_negative(Abs(a) - a, a, b)
    s = ResidualStack()
    x0, x1 = s.x(0), s.general_term(1)
    dropped = s.W(1, 1) * x0 + s.b(1, 3)
    without = Parameter("x~'", (2,), s.width, 1)
    activation, argument = Parameter("s", (1,), s.neurons, 1), Parameter("z", (2,), s.neurons, 1)
    names = (
        Definition(activation, Activation(s.W(1, 2) * x0 + s.b(1, 2))),
        Definition(argument, s.W(2, 2) * x1 + s.b(2, 2)),
    )
    pruned = Definition(without, s.general_term(2, dropped))
    effect = s.W(2, 1) * s.W(1, 3) * activation + s.W(2, 3) * (
        Activation(argument) - Activation(argument - s.W(2, 2) * s.W(1, 3) * activation)
    )
    steps = (
        Step(Abs(s1 + s2 - f), epsilon, "Eq. 13: the assumption, with S_1 kept and S_2 dropped", None, "<"),
        Step(Abs(Abs(kept) - Abs(s2)), Abs(s1 + s2 - f), "reverse triangle inequality, by the signs", reverse, "≤"),
        Step(Abs(Abs(kept) - Abs(s2)), epsilon, "Eq. 15", reverse, "<"),
        Step(Abs(kept), epsilon + Abs(s2), "Eq. 16, since t ≤ |t| for t = |S_1 − f| − |S_2|", reverse and below, "<"),
        equality(
            s.form(2) - (s.P(2) * x0 + s.q(2) + s.C(2, 2) * s.activation(2)),
            s.C(1, 2) * s.activation(1),
            "by the recursions, with term 1 of two layers dropped and all else held",
            s.recursions,
        ),
        *let_each(*names),
        let(without, pruned.right, "the network without term 1, run again"),
        equality(s.x(2) - without, effect, "its difference: the later term moves too", (s.equation_20, pruned, *names)),
    )
    remark = "Held and run again differ by how later terms move: a small S_2 alone doesn't bound the second."
    sums = (
        "S_1 is the sum of the kept terms at an input, S_2 that of the dropped ones, f the value there of the function"
        " that they approximate: real numbers."
    )
    again = "Run again without term 1, the network has the same parameters; a tilde marks what its two layers return."
    return Derivation(
        "What pruning costs",
        steps,
        remark,
        given=let_each(*s.recursions),
        premises=(sums, *of_a_held_stack(s.equation_20), again),
    )
