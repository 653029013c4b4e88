"""Define the expressions of the papers' attention heads, on `x` and on `vec(x)`, with the patterns held or not."""

from typing import Any

from sympy import Expr, Identity, MatrixExpr, Symbol, Transpose, sqrt

from symbolic.audit.letters import applied, index, table
from symbolic.equality.definition import Definition
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.operations import Kronecker, Vec
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.vectorisation.attention import (
    BACK,
    HEADS,
    JOINED,
    OUTPUT,
    PATTERN,
    PLACE,
    SIZE,
    W_HV,
    W_HVO,
    W_O,
    M,
    N,
    X,
)

_k = index("k")

HEAD = Variable("x", ("i",), N, SIZE)  # the slice of one

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

PATTERNS = table({"W'_HVO": Transpose(W_HVO).doit(deep=False), "H_k": PATTERN, "V_k": BACK * OUTPUT})

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
    """Return the softmax of every row, of which nothing is used but that it is a function of its argument."""
    return Activation(scores, 0, "softmax")


_NAMES: dict[str, Any] = {f"W_{r},i": Parameter("W", (r, "i"), SIZE, SIZE) for r in ("Q", "K", "V", "QK")}

_NAMES |= {f"{r}_i": Parameter(r, ("i",), N, SIZE) for r in "QKV"}

_NAMES |= {"x_i": HEAD, "H_i": _ONE_PATTERN, "H^_i": Parameter("H^", ("i",), N, SIZE), "M": M}

ATTENTION = table(_NAMES, functions={"softmax": softmax, "Attention": applied("Attention")})

SCORES = HEAD * _NAMES["W_Q,i"] * Transpose(HEAD * _NAMES["W_K,i"])

W_QK = Definition(_NAMES["W_QK,i"], _NAMES["W_Q,i"] * _NAMES["W_K,i"].T)

ONE_HEAD = softmax(SCORES * (1 / sqrt(M))) * (HEAD * _NAMES["W_V,i"])

HELD_PATTERN = Definition(_ONE_PATTERN, softmax(SCORES * (1 / sqrt(M))))


def _head(k: Any) -> Parameter:
    """Return `Ĥ_k`."""
    return Parameter("H^", (k,), N, SIZE)


_SIDE_BY_SIDE = IndexedSum(_head(_k) * PLACE.T, _k, 1, HEADS)  # with `S_k` placing the features of head k

_FIRST, _LAST = _head(1), _head(Symbol("h"))


def _concatenated(*heads: Expr) -> Any:
    """Return `Concat(Ĥ_1, …, Ĥ_h)`: side by side is a sum."""
    return _SIDE_BY_SIDE if heads == (_FIRST, Symbol("..."), _LAST) else applied("Concat")(*heads)


# Eq. 7
SIDE_BY_SIDE = table(
    {
        **{letter: Symbol(letter) for letter in "QKV"},
        "H°": Parameter("H°", (), N, M),
        "H^": _SIDE_BY_SIDE,
        "W_O": OUTPUT,
        "H^_1": _FIRST,
        "H^_h": _LAST,
    },
    functions={"MultiHead": applied("MultiHead"), "Concat": _concatenated},
)
