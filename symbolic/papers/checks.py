"""What the checks of several claims share: chains of equal lines, derivations as evidence, and numbers put in."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from sympy import Expr, ImmutableMatrix, MatrixExpr, Max, S

from symbolic.equality.definition import Definition
from symbolic.errors import ShapeMismatch
from symbolic.evaluation.interpreter import Interpreter, exact
from symbolic.expressions.matrix import MatrixSum
from symbolic.expressions.parameter import Parameter
from symbolic.papers.counterexample import Outcome, identity
from symbolic.proof.derivation import Derivation
from symbolic.theorems.residual_stack import ResidualStack


def derived(derivation: Derivation, what: str) -> Outcome:
    """Return the outcome of a derivation.

    Args:
        derivation: the derivation.
        what: what it proves, in words.
    """
    return Outcome(derivation.verified, f"{what}: {derivation.verdict}")


def chain(first: MatrixExpr, lines: Sequence[MatrixExpr], using: Iterable[Definition] = ()) -> Outcome:
    """Decide a row of equations, line by line.

    Args:
        first: what all lines should equal.
        lines: the lines.
        using: what parameters stand for.
    """
    using = tuple(using)
    for number, line in enumerate(lines, 1):
        outcome = identity(first, line, using)
        if not outcome.holds:
            return Outcome(False, f"line {number}: {outcome.how}")
    return Outcome(True, f"proved: all {len(lines)} lines have the same normal form")


def adds(*summands: MatrixExpr) -> Outcome:
    """Decide whether expressions can be added at all.

    Args:
        summands: the expressions.
    """
    try:
        MatrixSum(*summands)
    except ShapeMismatch as error:
        return Outcome(False, f"it can't be formed: {error}")
    return Outcome(True, "well formed: all shapes fit")


def at_depths(decide: Callable[[int], Outcome], depths: Sequence[int]) -> Outcome:
    """Decide a claim at one depth after the other, and say up to which it holds.

    Args:
        decide: decides it at one depth.
        depths: the depths, ascending.
    """
    for depth in depths:
        outcome = decide(depth)
        if not outcome.holds:
            before = f"right up to depth {depth - 1}, " if depth > depths[0] else ""
            return Outcome(False, f"{before}wrong at depth {depth} ({outcome.how})")
    return Outcome(True, f"right at depths {depths[0]} to {depths[-1]}")


def scalar(expression: MatrixExpr, values: Mapping[Parameter, int], stack: ResidualStack) -> Expr:
    """Return the value of a vector of length 1 at numbers, with all sizes 1 and `σ` the ReLU.

    Args:
        expression: the expression.
        values: a number for every parameter.
        stack: the symbols, whose sizes become 1.
    """
    numbers = {p: ImmutableMatrix([[v]]) for p, v in values.items()}
    sizes = {stack.width: S.One, stack.neurons: S.One}
    return Interpreter(numbers, exact(lambda t: Max(0, t)), sizes=sizes).value(expression)[0]
