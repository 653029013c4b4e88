"""Decide the claims about the density of attention as a matrix, with and without a causal mask."""

from fractions import Fraction
from functools import cache, partial
from itertools import product

from sympy import ImmutableMatrix, Rational, Symbol

from symbolic.audit import heads
from symbolic.audit.checks import both, expect, independent
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.heads import N
from symbolic.audit.letters import Name, index, table
from symbolic.expressions.operations import Vec
from symbolic.vectorisation.attention import attention
from symbolic.vectorisation.entries import density, kronecker

SIZES = ((1, 2, 1), (2, 2, 1), (2, 2, 2), (3, 2, 2), (2, 4, 2))  # tokens, features, heads


_HELD = ImmutableMatrix([[Rational(1, 2)] * 2] * 2)  # a pattern of two tokens

_ONE_HEAD = Symbol("W'_HVi")

_WHOLE = heads.WHOLE.symbol(Name("W", ("HVO",), (), True))


def _named(claim: Claim) -> list:
    """Return the expressions that the symbols in a sentence stand for."""
    return [statement.sides[0] for statement in claim.says]


def _special_values(claim: Claim) -> Outcome:
    """Compute a counterexample in which no variable is zero but W_V W_O is: two features, one head."""
    expect(_named(claim) == [heads.JOINED, heads.TRANSPOSED_O], "W_{HV} and W'_O")
    w_v, w_o = ImmutableMatrix([[1, 1], [1, 1]]), ImmutableMatrix([[1, 1], [-1, -1]])
    whole = kronecker(_HELD, (w_v * w_o).T)
    return Outcome(
        density(whole) == 1,
        f"counterexample, N = M = 2, one head, all entries of H 1/2, W_V = {w_v.tolist()}, W_O = {w_o.tolist()}: no"
        f" variable is zero and W'_{{HVO}} has density {density(whole)}",
    )


def _special_head(claim: Claim) -> Outcome:
    """Compute the density of a head whose W_V is the identity, and of one with a causal mask."""
    expect(_named(claim) == [_ONE_HEAD], "W'_{HVi}")
    w_v = ImmutableMatrix.eye(2)
    dense, causal = density(kronecker(_HELD, w_v.T)), attention(2, 2, 1, causal=True).value.density
    return Outcome(
        dense == causal == 1,
        f"counterexample, N = M = 2, all entries of H 1/2, W_V = {w_v.tolist()}: W'_{{HVi}} has density {dense}; with"
        f" a causal mask and generic values it has {causal}",
    )


@cache
def _counted(
    which: str, tokens: tuple[int, ...] = (2, 3), *, causal: bool = False
) -> dict[tuple[int, int, int], Fraction]:
    sizes = [(n, 2, 1) for n in tokens] if causal or which == "value" else list(SIZES)
    return {size: getattr(attention(*size, causal=causal), which).density for size in sizes}


def _generic_density(which: str) -> Outcome:
    counted = _counted(which)
    return Outcome(
        set(counted.values()) == {Fraction(1)},
        f"every entry is a polynomial other than 0, at {len(counted)} sizes: density 1",
        f"(N, M, h) = {', '.join(map(str, counted))}",
    )


def _densities_as_stated(claim: Claim, which: str) -> Outcome:
    """Compare the two stated densities with those counted without and with a causal mask."""
    free, masked = (statement.sides[0] for statement in claim.says)
    generic, causal = _counted(which), _counted(which, (2, 3, 4), causal=True)
    good = all(free == d for d in generic.values())
    good = good and all(masked.subs(N, size[0]) == d for size, d in causal.items())
    counted = ", ".join(f"{d} at N = {size[0]}" for size, d in causal.items())
    return Outcome(good, f"counted: 1 at {len(generic)} sizes without a mask, and with a causal one {counted}")


@cache
def _sees(causal: bool, n: int, m: int) -> bool:
    """Tell whether token n of attention's output contains token m of its input, at three tokens and two features."""
    whole = attention(3, 2, 1, causal=causal).whole.matrix
    return any(whole[2 * (n - 1) + r, 2 * (m - 1) + c] != 0 for r in (0, 1) for c in (0, 1))


_PAIRS = [(n, m) for n in (1, 2, 3) for m in (1, 2, 3)]


def _with_a_mask(claim: Claim) -> Outcome:
    expect(_named(claim) == [Vec(heads.JOINED * heads.OUTPUT)], "H̊'")
    unseen = [(n, m) for n, m in _PAIRS if not _sees(True, n, m)]
    return Outcome(
        not unseen,
        "counterexample, a causal mask, three tokens: "
        + ", ".join(f"token {n} doesn't contain token {m}" for n, m in unseen),
    )


def _without_a_mask() -> Outcome:
    good = all(_sees(False, *pair) for pair in _PAIRS)
    seen = Outcome(good, "every token contains every token, at N = 3", "N = 3, M = 2")
    return both(seen, _generic_density("whole"))


def _preceding_only(claim: Claim) -> Outcome:
    """Compare the stated tokens with those that attention with a causal mask contains."""
    statement = next(s for s in claim.says if s.relations)
    holds = {r"\le": lambda a, b: a <= b, r"\ge": lambda a, b: a >= b, "<": lambda a, b: a < b, ">": lambda a, b: a > b}

    def stated(n: int, m: int) -> bool:
        left, right = (side.subs({index("m"): m, index("n"): n}) for side in statement.sides)
        return bool(holds[statement.relations[0]](left, right))

    good = all(stated(n, m) == _sees(True, n, m) for n, m in _PAIRS) and all(_sees(False, *pair) for pair in _PAIRS)
    return Outcome(good, "token by token at N = 3, without and with a causal mask")


def _uncorrelated(claim: Claim) -> Outcome:
    """Compute the covariance of two elements over all signs of the entries of W_V W_O."""
    expect(_named(claim) == [_WHOLE], "W'_{HVO}")
    drawn = [kronecker(_HELD, ImmutableMatrix(2, 2, signs).T) for signs in product((1, -1), repeat=4)]
    first, second, both_at_once = (
        sum(map(value, drawn)) / len(drawn)
        for value in (lambda w: w[0, 0], lambda w: w[0, 1], lambda w: w[0, 0] * w[0, 1])
    )
    covariance = both_at_once - first * second
    return Outcome(
        covariance != 0,
        "counterexample, N = M = 2, one head, all entries of H 1/2, the entries of W_V W_O 1 or −1 independently: over"
        f" all {len(drawn)} matrices two elements of one row of W'_{{HVO}} have the covariance {covariance}",
    )


def _kronecker_sum(claim: Claim) -> Outcome:
    """Decide that elements of one head depend on one another: `w_{na,mb} w_{pc,qd} = w_{nc,md} w_{pa,qb}`."""
    whole = attention(2, 2, 1).whole.matrix
    places = [(n, m, p, q, a, b, c, d) for n, m, p, q, a, b, c, d in product((0, 1), repeat=8)]
    good = all(
        (whole[2 * n + a, 2 * m + b] * whole[2 * p + c, 2 * q + d]).expand()
        == (whole[2 * n + c, 2 * m + d] * whole[2 * p + a, 2 * q + b]).expand()
        for n, m, p, q, a, b, c, d in places
    )
    left, right = claim.mended.row.equated
    expect(left == _WHOLE, "W'_{HVO}")
    return both(
        identity(left, right.xreplace({index("h"): heads.HEADS})),
        Outcome(good, "the products of elements agree entry by entry, at N = M = 2 and one head", "N = M = 2, h = 1"),
    )


CHECKS = {
    "dense matrix": Checks(
        _special_values,
        (independent(partial(_generic_density, "whole")),),
        partial(_densities_as_stated, which="whole"),
        heads.WHOLE,
    ),
    "dense head": Checks(
        _special_head,
        (independent(partial(_generic_density, "value")),),
        partial(_densities_as_stated, which="value"),
        table({"W'_HV,i": _ONE_HEAD, "N": N}),
    ),
    "correlated elements": Checks(_uncorrelated, (_kronecker_sum,), _kronecker_sum, heads.PATTERNS),
    "whole context": Checks(_with_a_mask, (independent(_without_a_mask),), _preceding_only, heads.WHOLE),
}
