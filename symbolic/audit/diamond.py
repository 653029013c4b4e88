"""Decide the claims of versions 001 and 003 about the diamond product."""

from dataclasses import replace
from functools import partial

from sympy import Identity, Tuple, symbols

from symbolic.audit import heads
from symbolic.audit.attention import order_of_transposed
from symbolic.audit.bold import bold
from symbolic.audit.checks import both, chain, every, expect, independent, lines_agree, row_agrees, rows_agree
from symbolic.audit.claim import DEFINED, Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.diamond_product import column_sums, diamond
from symbolic.audit.formula import read
from symbolic.audit.letters import index, table
from symbolic.equality.definition import Definition
from symbolic.expressions.kronecker import Kronecker
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.expressions.vec import Vec
from symbolic.vectorisation.entries import entries, same

_D, _N, _M = symbols("d N M", integer=True, positive=True)

_W, _X, _Y = Parameter("W", (), _D, _D), Parameter("x", (), _D, 1), Parameter("y", (), _D, 1)

_TWO = {f"W_{k}": Parameter("W", (k,), _D, _D) for k in (1, 2)}

SQUARE = table({"W": _W, "x": _X, "y": _Y, "W_12": _TWO["W_1"].T * _TWO["W_2"].T, **_TWO})

_FROM_RIGHT = replace(SQUARE, from_right=True)

ON_ROWS = Parameter("W", (), _N, _N)

PRIMED = Kronecker(ON_ROWS, Identity(_M)).T  # Eq. 5 of both versions applies it transposed

_IN, _OUT = Variable("x", ("i",), _N, _M), Variable("x", ("i+1",), _N, _M)

LINEAR = table(
    {
        "x_i": _IN,
        "x_i+1": _OUT,
        "W_i": ON_ROWS,
        "x'_i": Vec(_IN),
        "x'_i+1": Vec(_OUT),
        "W'_i": PRIMED,
    }
)


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


_diamond_is_transposed = every(row_agrees(), _columns_are_summed)


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

_PRODUCT = r"\mathbf{W}\diamond\mathbf{x}"

_SIZES = r",\quad\mathbf{W}\in\mathbb{R}^{(m,n)},\;\mathbf{x}\in\mathbb{R}^{(m,1)},\;\mathbf{y}\in\mathbb{R}^{(m,1)}"

_DEFINITION_MENDED = (
    (rf"{_PRODUCT}=", rf"{_PRODUCT}=\mathbf{{W}}^{{T}}\mathbf{{x}}="),
    (r"\mathbf{y}\in\mathbb{R}^{(m,1)}", r"\mathbf{y}\in\mathbb{R}^{(n,1)}"),
)

_DECLARED = table(
    {
        "W": _W,
        "x": _X,
        "y": _Y,
        "R^(m,n)": Tuple(index("m"), index("n")),
        "R^(m,1)": Tuple(index("m"), 1),
        "R^(n,1)": Tuple(index("n"), 1),
    }
)

_DEFINITION = Claim(
    "4",
    rf"{_PRODUCT}=\mathbf{{y}}{_SIZES}",
    _diamond_shape,
    source="001",
    notation=_DECLARED,
    readings={"W is square": partial(_diamond_shape, m=3, n=3)},
    kind=DEFINED,
    remark="The first entry is printed as w_1 x_1 + w_31 * x_2 + …, for w_{1,1} x_1 + w_{2,1} x_2 + ….",
    correct=_DEFINITION_MENDED,
    correction=_transposed_and_shaped,
)

_square_claim = partial(Claim, source="001", notation=SQUARE)

_PRINTED_WITHOUT_BRACKETS = (
    "Printed without brackets: read from the left, as usual. The product isn't associative, and from the right it"
    " fails."
)

_WITHOUT_THE_TRANSPOSE = (
    "The line without the transpose equals neither neighbour; the last line is the identity, bracketed from the left."
)

CLAIMS = (
    _DEFINITION,
    _square_claim(
        "diamond and transpose",
        bold(r"W\diamond x=W^{T}x=x\diamond W"),
        _diamond_is_transposed,
        remark="The second equation is a definition.",
    ),
    _square_claim(
        "diamond not associative",
        r"\text{the Diamond Matrix Multiplication does not possess the properties of associativity}\ldots",
        _no_associativity,
    ),
    _square_claim(
        "diamond not distributive",
        r"\ldots\text{and distributivity}",
        _no_distributivity,
        remark="It is linear in both factors, as W^T x is.",
        correct=bold(r"W\diamond(x+y)=W\diamond x+W\diamond y"),
        correction=_distributes,
    ),
    _square_claim(
        "first diamond identity",
        bold(r"W_{1}\diamond[x\diamond W_{2}]=W_{2}^{T}\diamond W_{1}\diamond x"),
        _from_left,
        remark=_PRINTED_WITHOUT_BRACKETS,
    ),
    _square_claim(
        "second diamond identity",
        bold(r"[W_{1}\diamond x]\diamond W_{2}=W_{1}^{T}\diamond W_{2}\diamond x"),
        _from_left,
        remark=_PRINTED_WITHOUT_BRACKETS,
    ),
    _square_claim(
        "W_12 in Appendix A",
        bold(r"W_{1}\diamond[x\diamond W_{2}]=W_{12},\quad W_{12}=W_{1}^{T}W_{2}^{T}"),
        rows_agree,
        readings={"x is left out after W_{12}, as in Eq. 13": _with_x},
        correct=bold(r"W_{1}\diamond[x\diamond W_{2}]=W_{12}x"),
        correction=row_agrees(),
    ),
    _square_claim(
        "13",
        bold(
            r"\begin{aligned}W_{1}\diamond[x\diamond W_{2}]&=W_{1}\diamond[W_{2}^{T}x]=W_{1}^{T}[W_{2}^{T}x]"
            r"=[W_{1}^{T}W_{2}^{T}]^{T}\diamond x\\&=(W_{2}W_{1})\diamond x=W_{2}\diamond W_{1}\diamond x"
            r"=W_{2}^{T}\diamond W_{1}\diamond x\end{aligned}"
        ),
        _neither_way,
        remark=_WITHOUT_THE_TRANSPOSE,
        correct=(
            (bold(r"=W_{2}\diamond W_{1}\diamond x"), ""),
            (bold(r"W_{2}^{T}\diamond W_{1}\diamond x"), bold(r"(W_{2}^{T}\diamond W_{1})\diamond x")),
        ),
        correction=row_agrees(),
    ),
    _square_claim(
        "14",
        bold(
            r"\begin{aligned}[W_{1}\diamond x]\diamond W_{2}&=[W_{1}^{T}x]\diamond W_{2}=W_{2}^{T}[W_{1}^{T}x]"
            r"=[W_{2}^{T}W_{1}^{T}]^{T}\diamond x\\&=[W_{1}W_{2}]\diamond x=W_{1}\diamond W_{2}\diamond x"
            r"=W_{1}^{T}\diamond W_{2}\diamond x\end{aligned}"
        ),
        _neither_way,
        remark=_WITHOUT_THE_TRANSPOSE,
        correct=(
            (bold(r"=W_{1}\diamond W_{2}\diamond x"), ""),
            (bold(r"W_{1}^{T}\diamond W_{2}\diamond x"), bold(r"(W_{1}^{T}\diamond W_{2})\diamond x")),
        ),
        correction=row_agrees(),
    ),
    Claim(
        "5",
        bold(r"x_{i+1}=W_{i}x_{i}\rightarrow x'_{i+1}=W'_{i}\diamond x'_{i}=(W'_{i})^{T}x'_{i}"),
        partial(_linear_by_diamond, arrow=r"\to"),
        source="001",
        notation=LINEAR,
        remark="Here W' is the transpose of the newest version's. The first x_i is printed x^i.",
    ),
    Claim(
        "order of factors",
        bold(r"W'_{HVO}=W_{WH}^{T}\diamond W'_{O}"),
        _order,
        source="001",
        notation=heads.WHOLE,
        remark="So W'_{HVO} = W'_{HV} W'_O for matrices that are applied transposed: the order that the newest"
        " version exchanges.",
    ),
    replace(_DEFINITION, source="003", remark=""),
    Claim(
        "5",
        bold(r"x_{i+1}=W_{i}x_{i}\mapsto x'_{i+1}=W'_{i}\diamond x'_{i}=(W'_{i})^{T}x'_{i}"),
        partial(_linear_by_diamond, arrow=r"\mapsto"),
        source="003",
        notation=LINEAR,
    ),
    Claim(
        "order of factors",
        bold(r"W'_{HVO}=(W'_{HV})^{T}\diamond W'_{O}"),
        _order,
        source="003",
        notation=heads.WHOLE,
        remark="As its second diamond identity gives it.",
    ),
)
