"""Decide the claims that a sum with fixed parameters fits one function, and gives similar inputs similar outputs."""

from sympy import Abs, Expr, Integer, MatrixExpr, Max, Rational, Symbol

from symbolic.audit.checks import expect
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.counterexample import Outcome
from symbolic.audit.letters import applied, table
from symbolic.audit.magnitude import as_number, never_negative
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Parameter

_T, _P, _A, _B = (Parameter(letter, (), 1, 1) for letter in "tpab")

_REAL = {parameter: Symbol(parameter.letter, real=True) for parameter in (_T, _P, _A, _B)}

_NUMBERS = table({parameter.letter: parameter for parameter in _REAL}, functions={"G": applied("G")})

_DISTANCE = ((1, (1, -1), 0), (1, (-1, 1), 0))  # α_j, W_j and b_j of Eq. 1 with two terms


def _sum(terms: tuple, *x: Expr) -> Expr:
    """Return Eq. 1 at an input, with `σ` the ReLU."""
    return sum((a * Max(0, sum(w * v for w, v in zip(row, x, strict=True)) + b) for a, row, b in terms), Integer(0))


def _number(expression: MatrixExpr) -> Expr:
    """Return an expression of numbers, with `σ` the ReLU as `(z + |z|) / 2`."""
    if isinstance(expression, Activation):
        z = as_number(expression.argument, _number)
        return (z + Abs(z)) / 2
    return _REAL[expression]


def _never_less(larger: Expr, smaller: Expr, *variables: Symbol) -> Outcome:
    good = never_negative((larger - smaller).expand(), *variables)
    return Outcome(good or None, "proved by signs" if good else "neither proved nor refuted by signs")


def _one_function(claim: Claim) -> Outcome:
    """Evaluate a fixed sum of a text t and a prompt p at both prompts; it is linear in t between 0 and 1."""
    texts = (Integer(0), Rational(1, 2), Integer(1))
    first, second = ([_sum(_DISTANCE, t, Integer(p)) for t in texts] for p in (0, 1))
    return Outcome(
        first == second,
        "counterexample, σ = ReLU, G(t, p) = σ(t − p) + σ(p − t), no parameter of which depends on the input: for t ="
        f" {', '.join(map(str, texts))} it is {', '.join(map(str, first))} with p = 0, the function t, and"
        f" {', '.join(map(str, second))} with p = 1, the function 1 − t",
    )


def _two_functions(claim: Claim) -> Outcome:
    """Decide that the corrected sum is the distance of text and prompt, and the sum of the counterexample."""
    name, total, distance = claim.row.equated
    expect(name == applied("G")(_T, _P), "G(t, p)")
    left, right = as_number(total, _number), as_number(distance, _number)
    t, p = _REAL[_T], _REAL[_P]
    points = [(Integer(a), Integer(b)) for a in (-2, 0, 1, 3) for b in (0, 1)]
    same = all(_sum(_DISTANCE, *point) == left.subs(dict(zip((t, p), point, strict=True))) for point in points)
    decided = [_never_less(*pair, t, p) for pair in ((left, right), (right, left))]
    good = same and all(outcome.holds for outcome in decided)
    return Outcome(good or None, f"both sides, {decided[0].how}, with σ = ReLU")


def _nearly_identical(claim: Claim) -> Outcome:
    """Evaluate a fixed sum at two prompts that differ by a millionth."""
    near, steep = Rational(1, 10**6), ((1, (0, 10**6), 0),)
    first, second = (_sum(steep, Integer(0), p) for p in (Integer(0), near))
    return Outcome(
        abs(first - second) <= near,
        f"counterexample, σ = ReLU, G(t, p) = σ(10^6 p): at p = 0 and p = 10^(−6) it is {first} and {second}, and so"
        " for every other pair of prompts with the weight for it",
    )


def _bounded_by_weights(claim: Claim) -> Outcome:
    """Decide that a term's outputs are no farther apart than its pre-activations, with `σ` the ReLU."""
    smaller, larger = (as_number(side, _number) for side in claim.row.related(r"\le"))
    return _never_less(larger, smaller, _REAL[_A], _REAL[_B])


CHECKS = {
    "one function": Checks(_one_function, (), _two_functions, _NUMBERS),
    "similar outputs": Checks(_nearly_identical, (), _bounded_by_weights, _NUMBERS),
}
