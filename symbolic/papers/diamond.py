"""The diamond product of versions 001 and 003, and what they derive with it."""

from collections.abc import Callable
from functools import partial

from sympy import Identity, MatrixExpr, symbols

from symbolic.expressions.kronecker import Kronecker
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.expressions.vec import Vec
from symbolic.papers.attention import order_of_transposed
from symbolic.papers.claim import Claim
from symbolic.papers.counterexample import Outcome, identity
from symbolic.vectorisation.diamond import column_sums, diamond
from symbolic.vectorisation.entries import entries, same

_D = symbols("d", integer=True, positive=True)

_W1, _W2, _X = Parameter("W", (1,), _D, _D), Parameter("W", (2,), _D, _D), Parameter("x", (), _D, 1)


def _diamond_shape() -> Outcome:
    w, x = entries(Parameter("W", (), 3, 2)), entries(Parameter("x", (), 3, 1))
    rows = column_sums(w, x).rows
    return Outcome(rows == 3, f"for m = 3 and n = 2 the product has {rows} entries, one for each column of W")


def _diamond_is_transposed(rows: int = 3, columns: int = 2) -> Outcome:
    w, x = entries(Parameter("W", (), rows, columns)), entries(Parameter("x", (), rows, 1))
    return Outcome(same(column_sums(w, x), w.T * x), "column sums and W^T x are equal entry by entry")


def _first_identity(from_left: bool) -> Outcome:
    left = diamond(_W1, diamond(_W2, _X))
    right = diamond(diamond(_W2.T, _W1), _X) if from_left else diamond(_W2.T, diamond(_W1, _X))
    return identity(left, right)


def _without_brackets(decide: Callable[[bool], Outcome]) -> Outcome:
    """Decide an identity printed without brackets from the left, as usual, and say what it is from the right."""
    left, right = decide(True), decide(False)
    return Outcome(left.holds and not right.holds, f"from the left {left.how}; from the right {right.how}")


def _second_identity(from_left: bool) -> Outcome:
    left = diamond(_W2, diamond(_W1, _X))
    right = diamond(diamond(_W1.T, _W2), _X) if from_left else diamond(_W1.T, diamond(_W2, _X))
    return identity(left, right)


def _bad_line(expected: MatrixExpr, first: MatrixExpr, second: MatrixExpr) -> Outcome:
    """Decide whether `A ⋄ B ⋄ x` without transposes equals what it should, in either bracketing."""
    outcomes = [
        identity(expected, diamond(diamond(first, second), _X)),
        identity(expected, diamond(first, diamond(second, _X))),
    ]
    return Outcome(
        any(o.holds for o in outcomes), f"from the left: {outcomes[0].how}; from the right: {outcomes[1].how}"
    )


def _distributes() -> Outcome:
    y = Parameter("y", (), _D, 1)
    return identity(diamond(_W1, _X + y), diamond(_W1, _X) + diamond(_W1, y))


def _no_distributivity() -> Outcome:
    found = _distributes()
    return Outcome(not found.holds, f"W ⋄ (x + y) = W ⋄ x + W ⋄ y is {found.how}")


def _no_associativity() -> Outcome:
    associates = identity(diamond(diamond(_W1, _W2), _X), diamond(_W1, diamond(_W2, _X)))
    return Outcome(not associates.holds, associates.how)


def _missing_x() -> Outcome:
    """`W_1 ⋄ [x ⋄ W_2] = W_{12}` as printed, a vector and a matrix."""
    product = _W1.T * _W2.T
    fits = product.shape == (_D, 1)
    return Outcome(fits, f"the left side is {_D} × 1 and W_{{12}} is {product.shape[0]} × {product.shape[1]}")


def _with_x() -> Outcome:
    return identity(diamond(_W1, diamond(_W2, _X)), _W1.T * _W2.T * _X)


def _linear_by_diamond() -> Outcome:
    n, m = symbols("N M", integer=True, positive=True)
    w, x = Parameter("W", (), n, n), Variable("x", (), n, m)
    kronecker = Kronecker(w, Identity(m))
    return identity(Vec(w * x), diamond(kronecker.T, Vec(x)))


def _transposed_order() -> Outcome:
    """`W'_{HV}^T ⋄ W'_O = W'_{HV} W'_O`, applied transposed."""
    p = symbols("p", integer=True, positive=True)
    hv, o = Parameter("W'", ("HV",), p, p), Parameter("W'", ("O",), p, p)
    product = identity(diamond(hv.T, o), hv * o)
    order = order_of_transposed()
    return Outcome(product.holds and order.holds, f"{product.how}; {order.how}")


_DIAMOND = r"\mathbf{W}\diamond\mathbf{x}=\mathbf{y}"

CLAIMS = (
    Claim(
        "4",
        "001",
        rf"{_DIAMOND},\quad\mathbf{{W}}\in\mathbb{{R}}^{{(m,n)}},\;\mathbf{{x}}\in\mathbb{{R}}^{{(m,1)}},\;\mathbf{{y}}\in\mathbb{{R}}^{{(m,1)}}",
        _diamond_shape,
        (("W is square", partial(_diamond_is_transposed, 3, 3)),),
        definition=True,
        remark="The first entry is printed as w_1 x_1 + w_31 * x_2 + …, for w_{1,1} x_1 + w_{2,1} x_2 + ….",
        corrected=rf"{_DIAMOND}=\mathbf{{W}}^{{T}}\mathbf{{x}},\quad\mathbf{{y}}\in\mathbb{{R}}^{{(n,1)}}",
        correction=_diamond_is_transposed,
    ),
    Claim(
        "diamond and transpose",
        "001",
        r"\mathbf{W}\diamond\mathbf{x}=\mathbf{W}^{T}\mathbf{x}=\mathbf{x}\diamond\mathbf{W}",
        _diamond_is_transposed,
        remark="The second equation is a definition.",
    ),
    Claim(
        "diamond not associative",
        "001",
        r"\text{the Diamond Matrix Multiplication does not possess the properties of associativity}\ldots",
        _no_associativity,
    ),
    Claim(
        "diamond not distributive",
        "001",
        r"\ldots\text{and distributivity}",
        _no_distributivity,
        remark="It is linear in both factors, as W^T x is.",
        corrected=r"\mathbf{W}\diamond(\mathbf{x}+\mathbf{y})=\mathbf{W}\diamond\mathbf{x}+\mathbf{W}\diamond\mathbf{y}",
        correction=_distributes,
    ),
    Claim(
        "first diamond identity",
        "001",
        r"\mathbf{W}_{1}\diamond[\mathbf{x}\diamond\mathbf{W}_{2}]=\mathbf{W}_{2}^{T}\diamond\mathbf{W}_{1}\diamond\mathbf{x}",
        lambda: _without_brackets(_first_identity),
        remark="Printed without brackets: read from the left, as usual. The product isn't associative, and from the"
        " right it fails.",
    ),
    Claim(
        "second diamond identity",
        "001",
        r"[\mathbf{W}_{1}\diamond\mathbf{x}]\diamond\mathbf{W}_{2}=\mathbf{W}_{1}^{T}\diamond\mathbf{W}_{2}\diamond\mathbf{x}",
        lambda: _without_brackets(_second_identity),
        remark="Printed without brackets: read from the left, as usual. The product isn't associative, and from the"
        " right it fails.",
    ),
    Claim(
        "W_12 in Appendix A",
        "001",
        r"\mathbf{W}_{1}\diamond[\mathbf{x}\diamond\mathbf{W}_{2}]=\mathbf{W}_{12},\quad\mathbf{W}_{12}=\mathbf{W}_{1}^{T}\mathbf{W}_{2}^{T}",
        _missing_x,
        (("x is left out after W_{12}, as in Eq. 13", _with_x),),
        corrected=r"\mathbf{W}_{1}\diamond[\mathbf{x}\diamond\mathbf{W}_{2}]=\mathbf{W}_{12}\mathbf{x}",
        correction=_with_x,
    ),
    Claim(
        "13",
        "001",
        r"\mathbf{W}_{1}\diamond[\mathbf{x}\diamond\mathbf{W}_{2}]=\mathbf{W}_{1}\diamond[\mathbf{W}_{2}^{T}\mathbf{x}]=\cdots=(\mathbf{W}_{2}\mathbf{W}_{1})\diamond\mathbf{x}"
        r"=\mathbf{W}_{2}\diamond\mathbf{W}_{1}\diamond\mathbf{x}=\mathbf{W}_{2}^{T}\diamond\mathbf{W}_{1}\diamond\mathbf{x}",
        lambda: _bad_line(_W1.T * _W2.T * _X, _W2, _W1),
        remark="The line without the transpose equals neither neighbour; the last line is the identity,"
        " bracketed from the left.",
        corrected=r"(\mathbf{W}_{2}\mathbf{W}_{1})\diamond\mathbf{x}=(\mathbf{W}_{2}^{T}\diamond\mathbf{W}_{1})\diamond\mathbf{x}",
        correction=lambda: identity(diamond(_W2 * _W1, _X), diamond(diamond(_W2.T, _W1), _X)),
    ),
    Claim(
        "14",
        "001",
        r"[\mathbf{W}_{1}\diamond\mathbf{x}]\diamond\mathbf{W}_{2}=[\mathbf{W}_{1}^{T}\mathbf{x}]\diamond\mathbf{W}_{2}=\cdots=[\mathbf{W}_{1}\mathbf{W}_{2}]\diamond\mathbf{x}"
        r"=\mathbf{W}_{1}\diamond\mathbf{W}_{2}\diamond\mathbf{x}=\mathbf{W}_{1}^{T}\diamond\mathbf{W}_{2}\diamond\mathbf{x}",
        lambda: _bad_line(_W2.T * _W1.T * _X, _W1, _W2),
        remark="The line without the transpose equals neither neighbour; the last line is the identity,"
        " bracketed from the left.",
        corrected=r"[\mathbf{W}_{1}\mathbf{W}_{2}]\diamond\mathbf{x}=(\mathbf{W}_{1}^{T}\diamond\mathbf{W}_{2})\diamond\mathbf{x}",
        correction=lambda: identity(diamond(_W1 * _W2, _X), diamond(diamond(_W1.T, _W2), _X)),
    ),
    Claim(
        "5",
        "001",
        r"\mathbf{x}_{i+1}=\mathbf{W}_{i}\mathbf{x}^{i}\rightarrow\mathbf{x}_{i+1}^{\prime}=\mathbf{W}_{i}^{\prime}\diamond\mathbf{x}_{i}^{\prime}=(\mathbf{W}_{i}^{\prime})^{T}\mathbf{x}_{i}^{\prime}",
        _linear_by_diamond,
        remark="Here W' is the transpose of the newest version's.",
    ),
    Claim(
        "order of factors",
        "001",
        r"\mathbf{W}_{HVO}^{\prime}=\mathbf{W}_{WH}^{T}\diamond\mathbf{W}_{O}^{\prime}",
        _transposed_order,
        remark="So W'_{HVO} = W'_{HV} W'_O for matrices that are applied transposed: the order that the newest"
        " version exchanges.",
    ),
    Claim(
        "4",
        "003",
        rf"{_DIAMOND},\quad\mathbf{{W}}\in\mathbb{{R}}^{{(m,n)}},\;\mathbf{{x}}\in\mathbb{{R}}^{{(m,1)}},\;\mathbf{{y}}\in\mathbb{{R}}^{{(m,1)}}",
        _diamond_shape,
        (("W is square", partial(_diamond_is_transposed, 3, 3)),),
        definition=True,
        corrected=rf"{_DIAMOND}=\mathbf{{W}}^{{T}}\mathbf{{x}},\quad\mathbf{{y}}\in\mathbb{{R}}^{{(n,1)}}",
        correction=_diamond_is_transposed,
    ),
    Claim(
        "5",
        "003",
        r"\mathbf{x}_{i+1}=\mathbf{W}_{i}\mathbf{x}_{i}\mapsto\mathbf{x}'_{i+1}=\mathbf{W}'_{i}\diamond\mathbf{x}'_{i}=(\mathbf{W}'_{i})^{T}\mathbf{x}'_{i}",
        _linear_by_diamond,
    ),
    Claim(
        "order of factors",
        "003",
        r"\mathbf{W}_{HVO}^{\prime}=\mathbf{W}_{HV}^{\prime T}\diamond\mathbf{W}_{O}^{\prime}",
        _transposed_order,
        remark="As its second diamond identity gives it.",
    ),
)
