"""Build checks of claims: rows of equal lines, derivations as evidence, several checks in one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sympy import Expr, ImmutableMatrix, MatrixExpr, S

from symbolic.audit.claim import Check, Claim
from symbolic.audit.counterexample import RELU, Outcome, identity
from symbolic.audit.letters import Statement
from symbolic.equality.definition import Definition
from symbolic.errors import SymbolicError
from symbolic.evaluation.interpreter import Interpreter
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.theorems.residual_stack import ResidualStack


def derived(derivation: Derivation, theorem: str) -> Outcome:
    """Return the outcome of a derivation."""
    return Outcome(derivation.verified, f"{theorem}: {derivation.verdict}")


def both(*outcomes: Outcome) -> Outcome:
    """Return the outcome that all of several hold; the first that doesn't decides."""
    doubtful = [outcome for outcome in outcomes if not outcome.holds]
    if doubtful:
        return doubtful[0]
    how, sizes = (
        "; ".join(filter(None, dict.fromkeys(part))) for part in zip(*((o.how, o.sizes) for o in outcomes), strict=True)
    )
    return Outcome(True, how, sizes)


def chain(first: MatrixExpr, lines: Sequence[MatrixExpr], using: Iterable[Definition] = ()) -> Outcome:
    """Decide a row of equations, line by line."""
    using = tuple(using)
    for number, line in enumerate(lines, 1):
        outcome = identity(first, line, using)
        if not outcome.holds:
            return Outcome(outcome.holds, f"line {number}: {outcome.how}" if len(lines) > 1 else outcome.how)
    if len(lines) == 1:
        return outcome
    return Outcome(True, f"proved: all {len(lines)} lines have the same normal form")


def lines_agree(statement: Statement, using: Iterable[Definition] = ()) -> Outcome:
    """Decide whether all sides of a printed row of equations are equal."""
    first, *lines = statement.equated
    return chain(first, lines, using)


def row_agrees(*using: Definition) -> Check:
    """Return a check that decides whether all sides of the first printed row of equations are equal."""
    return lambda claim: lines_agree(claim.row, using)


def rows_agree(claim: Claim) -> Outcome:
    """Decide whether the sides of every printed row of equations are equal."""
    return both(*map(lines_agree, claim.says))


def independent(decide: Callable[[], Outcome]) -> Check:
    """Return a check that decides the same whatever formula is printed."""
    return lambda claim: decide()


def every(*checks: Check) -> Check:
    """Return a check that holds if all of several checks do."""
    return lambda claim: both(*(check(claim) for check in checks))


def expect(holds: bool, expected: str) -> None:
    """Raise if what is printed isn't what a check decides."""
    if not holds:
        raise SymbolicError(f"what is printed isn't what is decided: {expected}")


def at_depths(decide: Callable[[int], Outcome], depths: Sequence[int]) -> Outcome:
    """Decide a claim at one depth after the other, and say up to which it holds."""
    for depth in depths:
        outcome = decide(depth)
        if not outcome.holds:
            before = f"right up to depth {depth - 1}, " if depth > depths[0] else ""
            doubt = "wrong" if outcome.holds is False else "undecided"
            return Outcome(outcome.holds, f"{before}{doubt} at depth {depth} ({outcome.how})")
    checked = f"depths {depths[0]} to {depths[-1]}"
    return Outcome(True, f"right at {checked}", checked)


def scalar(expression: MatrixExpr, values: Mapping[Parameter, Any], stack: ResidualStack) -> Expr:
    """Return the value of a vector of length 1 at numbers, with all sizes 1 and `σ` the ReLU."""
    numbers = {p: ImmutableMatrix([[v]]) for p, v in values.items()}
    sizes = {stack.width: S.One, stack.neurons: S.One}
    return Interpreter(numbers, RELU, sizes=sizes).value(expression)[0]
