"""Decide the claims of versions 001 and 003 about the diamond product."""

from dataclasses import replace
from functools import partial

from sympy import Identity, Symbol, Tuple

from symbolic.audit import heads
from symbolic.audit.attention import order_of_transposed
from symbolic.audit.checks import both, chain, every, expect, independent, lines_agree, row_agrees, rows_agree
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.diamond_product import column_sums, diamond
from symbolic.audit.formula import read
from symbolic.audit.letters import index, table
from symbolic.audit.linear import ROWS, linear_layer
from symbolic.equality.definition import Definition
from symbolic.expressions.operations import Kronecker, Vec
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.vectorisation.attention import M, N
from symbolic.vectorisation.entries import entries, same

_D = Symbol("d", integer=True, positive=True)

_W, _X, _Y = Parameter("W", (), _D, _D), Parameter("x", (), _D, 1), Parameter("y", (), _D, 1)

_TWO = {f"W_{k}": Parameter("W", (k,), _D, _D) for k in (1, 2)}

SQUARE = table({"W": _W, "x": _X, "y": _Y, "W_12": _TWO["W_1"].T * _TWO["W_2"].T, **_TWO})

_FROM_RIGHT = replace(SQUARE, from_right=True)

PRIMED = Kronecker(ROWS, Identity(M)).T  # Eq. 5 of both versions applies it transposed

_OUT = Variable("x", ("i+1",), N, M)


def _declared(claim: Claim) -> dict[str, tuple]:
    """Return the shapes that a definition declares for its letters."""
    return {str(s.sides[0]): tuple(s.related(r"\in")[1]) for s in claim.says[1:]}


def _diamond_shape(claim: Claim, m: int = 3, n: int = 2) -> Outcome:
    """Compare the shape of `W ⋄ x`, for W and x of their declared shapes, with that of y."""
    printed, y = claim.row.equated
    expect((printed, y) == (diamond(_W, _X), _Y), "W ⋄ x = y")
    sizes = {index("m"): m, index("n"): n}
    shapes = {
        letter: tuple(int(size.subs(sizes)) if size.free_symbols else int(size) for size in shape)
        for letter, shape in _declared(claim).items()
    }
    expect(set(shapes) == {"W", "x", "y"}, "shapes of W, x and y")
    w, x = (entries(Parameter(letter, (), *shapes[letter])) for letter in "Wx")
    expect(w.rows == x.rows and x.cols == 1, "a vector x with as many rows as W")
    computed = column_sums(w, x)
    transposed = same(computed, w.T * x)
    return Outcome(
        transposed and computed.shape == shapes["y"],
        f"for m = {m} and n = {n} the product has {computed.rows} entries, one for each column of W, and y has"
        f" {shapes['y'][0]}; they are those of W^T x",
    )


def _columns_are_summed(claim: Claim) -> Outcome:
    w, x = entries(Parameter("W", (), 3, 2)), entries(Parameter("x", (), 3, 1))
    good = same(column_sums(w, x), w.T * x)
    return Outcome(good, "column sums and W^T x are equal entry by entry", "m = 3, n = 2")


def _transposed_and_shaped(claim: Claim) -> Outcome:
    product, transposed, y = claim.row.equated
    expect(product == diamond(_W, _X) and y == _Y, "W ⋄ x = W^T x = y")
    rows = tuple(size.subs({index("m"): 3, index("n"): 2}) for size in _declared(claim)["y"])
    summed = _columns_are_summed(claim)
    return both(identity(product, transposed), Outcome(summed.holds and rows == (2, 1), f"{summed.how}, n of them"))


def _both_ways(claim: Claim) -> tuple[Outcome, Outcome]:
    """Decide a row of equations bracketed from the left, and from the right."""
    return lines_agree(claim.row), lines_agree(read(claim.printed, _FROM_RIGHT)[0])


def _from_left(claim: Claim) -> Outcome:
    """Decide an identity printed without brackets from the left, as usual, and say what it is from the right."""
    left, right = _both_ways(claim)
    how = f"from the left {left.how}; from the right {right.how}"
    return Outcome(left.holds if right.holds is False else None, how)


def _neither_way(claim: Claim) -> Outcome:
    """Decide a row of equations in either bracketing; it fails if both do."""
    left, right = _both_ways(claim)
    if left.holds or right.holds:
        return left if left.holds else right
    return Outcome(
        None if None in (left.holds, right.holds) else False, f"from the left: {left.how}; from the right: {right.how}"
    )


def _refuted(outcome: Outcome, words: str = "") -> Outcome:
    """Return the outcome that an identity doesn't hold."""
    return Outcome(None if outcome.holds is None else not outcome.holds, words + outcome.how)


def _no_associativity(claim: Claim) -> Outcome:
    first, second = _TWO.values()
    return _refuted(identity(diamond(diamond(first, second), _X), diamond(first, diamond(second, _X))))


def _no_distributivity(claim: Claim) -> Outcome:
    distributes = identity(diamond(_W, _X + _Y), diamond(_W, _X) + diamond(_W, _Y))
    return _refuted(distributes, "W ⋄ (x + y) = W ⋄ x + W ⋄ y is ")


def _distributes(claim: Claim) -> Outcome:
    left, right = claim.row.equated
    expect(left == diamond(_W, _X + _Y), "W ⋄ (x + y)")
    return identity(left, right)


def _with_x(claim: Claim) -> Outcome:
    first, second = claim.says
    product, matrix = first.equated
    return both(lines_agree(second), identity(product, matrix * _X))


def _linear_by_diamond(claim: Claim, arrow: str) -> Outcome:
    following, value, *vectors = claim.row.related("=", arrow, "=", "=")
    expect(following == _OUT, "x_{i+1}")
    return chain(Vec(following), vectors, [Definition(following, value)])


_order = every(row_agrees(), independent(order_of_transposed))

_DEFINITION = Checks(
    _diamond_shape,
    (partial(_diamond_shape, m=3, n=3),),
    _transposed_and_shaped,
    table(
        {
            "W": _W,
            "x": _X,
            "y": _Y,
            "R^(m,n)": Tuple(index("m"), index("n")),
            "R^(m,1)": Tuple(index("m"), 1),
            "R^(n,1)": Tuple(index("n"), 1),
        }
    ),
)

CHECKS_001 = {
    "4": _DEFINITION,
    "diamond and transpose": Checks(every(row_agrees(), _columns_are_summed), notation=SQUARE),
    "diamond not associative": Checks(_no_associativity, notation=SQUARE),
    "diamond not distributive": Checks(_no_distributivity, (), _distributes, SQUARE),
    "first diamond identity": Checks(_from_left, notation=SQUARE),
    "second diamond identity": Checks(_from_left, notation=SQUARE),
    "W_12 in Appendix A": Checks(rows_agree, (_with_x,), row_agrees(), SQUARE),
    "13": Checks(_neither_way, (), row_agrees(), SQUARE),
    "14": Checks(_neither_way, (), row_agrees(), SQUARE),
    "5": Checks(partial(_linear_by_diamond, arrow=r"\to"), notation=linear_layer(PRIMED)),
    "order of factors": Checks(_order, notation=heads.WHOLE),
}

CHECKS_003 = {
    "4": _DEFINITION,
    "5": Checks(partial(_linear_by_diamond, arrow=r"\mapsto"), notation=linear_layer(PRIMED)),
    "order of factors": Checks(_order, notation=heads.WHOLE),
}
