"""Define the expressions of the papers' attention heads, on `x` and on `vec(x)`, with the patterns held or not."""

from typing import Any

from sympy import Expr, Identity, MatrixExpr, Symbol, Transpose, sqrt, symbols

from symbolic.audit.letters import Notation, applied, index, table
from symbolic.equality.definition import Definition
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.operations import Kronecker, Vec
from symbolic.expressions.parameter import Parameter, Variable

N, M, SIZE, HEADS = symbols("N M m h", integer=True, positive=True)

_k = index("k")

X = Variable("x", (), N, M)  # the input of all heads

HEAD = Variable("x", ("i",), N, SIZE)  # the slice of one

PATTERN, OUTPUT = Parameter("H", (_k,), N, N), Parameter("W", ("O",), M, M)

_PLACE, _VALUE = Parameter("S", (_k,), M, SIZE), Parameter("W", ("V", _k), SIZE, SIZE)

_BACK = _PLACE * _VALUE * _PLACE.T

JOINED = IndexedSum(PATTERN * X * _BACK, _k, 1, HEADS)  # the heads side by side

W_HV = IndexedSum(Kronecker(PATTERN, _BACK.T), _k, 1, HEADS)

W_O = Kronecker(Identity(N), OUTPUT.T)

W_HVO = IndexedSum(Kronecker(PATTERN, (_BACK * OUTPUT).T), _k, 1, HEADS)

TRANSPOSED_HV = Transpose(W_HV).doit(deep=False)

TRANSPOSED_O = Transpose(W_O).doit(deep=False)

# Section 3.2 applies the three matrices transposed.
WHOLE = table(
    {
        "H°'": Vec(JOINED * OUTPUT),
        "H^'": Vec(JOINED),
        "x'": Vec(X),
        "W_HV": JOINED,
        "W'_HV": TRANSPOSED_HV,
        "W_WH": TRANSPOSED_HV,
        "W'_O": TRANSPOSED_O,
        "W'_HVO": Transpose(W_HVO).doit(deep=False),
        "W'": W_HVO,
        "N": N,
        "M": M,
        "m": index("m"),
        "n": index("n"),
    }
)

PATTERNS = table(
    {"W'_HVO": Transpose(W_HVO).doit(deep=False), "H_k": PATTERN, "V_k": _BACK * OUTPUT},
)

_ONE_PATTERN, _ONE_VALUE = Parameter("H", ("i",), N, N), Parameter("W", ("V", "i"), SIZE, SIZE)

# Appendix A does the same for one head.
ONE = table(
    {
        "x'_i": Vec(HEAD),
        "H'_i": Transpose(Kronecker(_ONE_PATTERN, Identity(SIZE))).doit(deep=False),
        "W'_V,i": Kronecker(Identity(N), _ONE_VALUE),
    }
)


def softmax(scores: MatrixExpr) -> Activation:
    """Return the softmax of every row, of which nothing is used but that it is a function of its argument.

    Args:
        scores: the scores.
    """
    return Activation(scores, 0, "softmax")


_NAMES: dict[str, Any] = {f"W_{r},i": Parameter("W", (r, "i"), SIZE, SIZE) for r in ("Q", "K", "V", "QK")}

_NAMES |= {f"{r}_i": Parameter(r, ("i",), N, SIZE) for r in "QKV"}

_NAMES |= {"x_i": HEAD, "H_i": _ONE_PATTERN, "H^_i": Parameter("H^", ("i",), N, SIZE), "M": M}

ATTENTION = table(_NAMES, functions={"softmax": softmax, "Attention": applied("Attention")})

SCORES = HEAD * _NAMES["W_Q,i"] * Transpose(HEAD * _NAMES["W_K,i"])

W_QK = Definition(_NAMES["W_QK,i"], _NAMES["W_Q,i"] * _NAMES["W_K,i"].T)

ONE_HEAD = softmax(SCORES * (1 / sqrt(M))) * (HEAD * _NAMES["W_V,i"])

HELD_PATTERN = Definition(_ONE_PATTERN, softmax(SCORES * (1 / sqrt(M))))


def _concatenated(first: MatrixExpr, dots: Expr, last: MatrixExpr) -> MatrixExpr:
    """Return `Concat(Ĥ_1, …, Ĥ_h)`: side by side is a sum, with `S_k` placing the features of head k."""
    first_head, last_head = (Parameter("H^", (k,), N, SIZE) for k in (1, Symbol("h")))
    if (first, dots, last) != (first_head, Symbol("..."), last_head):
        return applied("Concat")(first, dots, last)
    return IndexedSum(Parameter("H^", (_k,), N, SIZE) * _PLACE.T, _k, 1, HEADS)


def heads_side_by_side() -> Notation:
    """Return the notation of Eq. 7."""
    joined = IndexedSum(Parameter("H^", (_k,), N, SIZE) * _PLACE.T, _k, 1, HEADS)
    names: dict[str, Any] = {letter: Symbol(letter) for letter in "QKV"}
    names |= {"H°": Parameter("H°", (), N, M), "H^": joined, "W_O": OUTPUT}
    names |= {"H^_1": Parameter("H^", (1,), N, SIZE), "H^_h": Parameter("H^", (Symbol("h"),), N, SIZE)}
    return table(names, functions={"MultiHead": applied("MultiHead"), "Concat": _concatenated})
