"""Decide the claims about pruning: Eq. 13–16, their premise, and their conclusion for layers."""

from dataclasses import replace
from functools import cache

from sympy import Abs, Expr, MatrixExpr, Rational, Symbol, ZeroMatrix

from symbolic.audit.checks import both, derived, every, expect, independent, scalar
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.formula import read
from symbolic.audit.letters import Statement
from symbolic.audit.magnitude import EPSILON, PREMISE, S1, S2, F, as_number, follows
from symbolic.audit.notation import EARLIER, FACTOR, FUNCTION, THRESHOLD, S
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter
from symbolic.theorems.residual_stack import ResidualStack
from symbolic.theorems.uat_sums import lemma_1, pruning

_KEPT, _DROPPED = (Symbol(f"Λ_{k}", positive=True) for k in (1, 2))

_SETS = {_KEPT: S1, _DROPPED: S2, Symbol("N", integer=True, positive=True): S1 + S2}


@cache
def is_the_sum(expression: MatrixExpr) -> bool:
    """Tell whether an expression is the sum of the universal approximation theorem, as Lemma 1 takes it."""
    return equal(FACTOR * expression, lemma_1().steps[0].left)


def _number(part: MatrixExpr) -> Expr:
    """Return the number that stands for `f(x)`, or for a sum of terms: those of other terms are other numbers."""
    if part in (FUNCTION, THRESHOLD):
        return F if part == FUNCTION else EPSILON
    if not isinstance(part, IndexedSum) or part.last not in _SETS:
        raise SymbolicError(f"{part} is no sum of terms, over Λ_1, Λ_2 or all N")
    whole = IndexedSum(part.body, part.index, part.first, Symbol("N", integer=True, positive=True))
    if is_the_sum(whole):
        return _SETS[part.last]
    letters = sorted(p.letter for p in part.atoms(Parameter))
    return (
        Symbol(f"T_{list(_SETS).index(part.last) + 1}", real=True)
        if "theta" in letters
        else Symbol(str(part), real=True)
    )


def numbers(statement: Statement) -> tuple[Expr, ...]:
    """Return the sides of a printed inequality as expressions of real numbers `S_1`, `S_2`, `f` and `ε`."""
    return tuple(as_number(side, _number) for side in statement.sides)


def _assumption(claim: Claim) -> Outcome:
    """Decide that a printed inequality is the assumption of the pruning argument, `|S_1 + S_2 − f| < ε`."""
    good = claim.row.relations == ("<",) and numbers(claim.row) == (PREMISE, EPSILON)
    return Outcome(good or None, "it is |Σ − f| < ε with the sum of Lemma 1" if good else "it is another inequality")


def _concluded(claim: Claim) -> Outcome:
    """Decide whether a printed inequality follows from the assumption."""
    expect(claim.row.relations == ("<",), "an inequality with <")
    return follows(*numbers(claim.row))


@cache
def pruning_bound() -> Outcome:
    """Decide the pruning inequality."""
    return derived(pruning(), "the pruning inequality")


concludes = every(_concluded, independent(pruning_bound))


def _with_b(claim: Claim) -> Outcome:
    return concludes(replace(claim, notation=EARLIER))


def small_set(statement: Statement, small: Symbol) -> None:
    """Raise if a printed premise isn't `|S| → 0` for the terms of one set."""
    expect(statement.relations == (r"\to",) and numbers(statement) == (Abs(small), 0), f"|{small}| → 0")


def _small_share(claim: Claim) -> Outcome:
    """Decide whether a term whose share of the output is zero can be removed from the network, which is run again."""
    small_set(read(claim.printed, EARLIER)[0], S2)
    s = ResidualStack()
    values = {s.W(1, 1): 1, s.W(1, 2): 1, s.W(1, 3): 1, s.b(1, 2): 0, s.b(1, 3): 0, s.x(0): 1}
    values |= {s.W(2, 1): 0, s.W(2, 2): 1, s.W(2, 3): 1, s.b(2, 2): 0, s.b(2, 3): 0}
    term = s.W(1, 3) * Activation(s.W(1, 2) * s.x(0) + s.b(1, 2))
    own = scalar(s.W(2, 1) * term, values, s)
    whole = scalar(s.general_term(2, s.general_term(1)), values, s)
    without = scalar(s.general_term(2, s.W(1, 1) * s.x(0) + s.b(1, 3)), values, s)
    return Outcome(
        abs(whole - without) <= abs(own),
        "counterexample, σ = ReLU, all sizes 1, W'_{2,1} = 0, all other matrices and x'_0 = 1, biases 0: layer 1's"
        f" own term is {own} at the output {whole}; without it the network, run again, gives {without}",
    )


def _drop_held_terms(claim: Claim) -> Outcome:
    small_set(read(claim.printed, EARLIER)[0], S2)
    dropped = S.form(2) - (S.P(2) * S.x(0) + S.q(2) + S.C(2, 2) * S.activation(2))
    outcome = identity(dropped, S.C(1, 2) * S.activation(1), S.recursions)
    return Outcome(outcome.holds, f"with all else held the output changes by the dropped terms alone: {outcome.how}")


def _run_again(claim: Claim) -> Outcome:
    """Decide how the output of two layers changes if the first one's term is removed and the network run again."""
    s = S
    without = s.W(1, 1) * s.x(0) + s.b(1, 3)
    names = (
        Definition(Parameter("s", (1,), s.neurons, 1), Activation(s.W(1, 2) * s.x(0) + s.b(1, 2))),
        Definition(Parameter("z", (2,), s.neurons, 1), s.W(2, 2) * s.x(1) + s.b(2, 2)),
        Definition(Parameter("x~'", (2,), s.width, 1), s.general_term(2, without)),
    )
    left, right = claim.row.equated
    return both(identity(left, right, (*names, s.equation_20, *s.recursions)), pruning_bound())


_TINY = Rational(1, 10**6)


def _whole_layer(claim: Claim) -> Outcome:
    """Remove a whole layer, all of whose parameters are 10^(−6), from a network of two, and run it again."""
    s = ResidualStack()
    values = dict.fromkeys((s.W(1, 1), s.W(1, 2), s.W(1, 3), s.b(1, 2), s.b(1, 3)), _TINY)
    values |= {s.W(2, 1): 1, s.W(2, 2): 1, s.W(2, 3): 1, s.b(2, 2): 0, s.b(2, 3): 0, s.x(0): 3}
    whole = scalar(s.general_term(2, s.general_term(1)), values, s)
    without = scalar(s.general_term(2, s.x(0)), values, s)
    moved = abs(whole - without)
    return Outcome(
        moved < Rational(1, 100),
        "counterexample, σ = ReLU, all sizes 1, all parameters of layer 1 10^(−6), all matrices of layer 2 1, its"
        f" biases 0, x'_0 = 3: x'_2 is {float(whole):.2g}, and {without} without layer 1: it changes by"
        f" {float(moved):.5f}",
    )


def _linear_path_stays(claim: Claim) -> Outcome:
    """Decide that the network without layer 1's term is its limit for `W'_{1,3} → 0`, where σ is continuous."""
    premise, limit = claim.mended.says
    matrix, zero = premise.sides
    expect(isinstance(matrix, Parameter) and zero == 0 and premise.relations == (r"\to",), "W'_{1,3} → 0")
    expect(limit.relations == (r"\to",), "a limit of x'_2")
    gone = Definition(matrix, ZeroMatrix(*matrix.shape))
    expect(not limit.sides[1].has(matrix), "a limit without the vanishing matrix")
    expect(limit.sides[1].has(S.W(1, 1)), "a limit with the linear path")
    left, right = limit.sides
    outcome = identity(left, right, (S.equation_20, gone))
    return Outcome(outcome.holds, f"at {matrix} = 0 nothing changes, {outcome.how}, and σ is continuous")


CHECKS = {
    "13": Checks(_assumption),
    "14": Checks(_assumption),
    "15": Checks(_concluded, (_with_b,), concludes),
    "16": Checks(concludes),
    "pruning of layers": Checks(_whole_layer, (_linear_path_stays,), _linear_path_stays),
    "small share of the output": Checks(_small_share, (_drop_held_terms,), _run_again),
}
