"""Derive attention with its pattern held as a matrix on `vec(x)`, and the pattern itself."""

from typing import NamedTuple

from sympy import Expr, Identity, ImmutableMatrix, Symbol, Transpose, exp, sqrt, symbols

from symbolic.errors import SymbolicError
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.operations import Kronecker, Vec
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step, equality, let
from symbolic.vectorisation.entries import Explicit, check_sizes, kronecker, matrix, matrix_of

N, M, SIZE, HEADS = symbols("N M m h", integer=True, positive=True)

_k = Symbol("k", integer=True, nonnegative=True)

X = Variable("x", (), N, M)  # the input of all heads

PATTERN, OUTPUT = Parameter("H", (_k,), N, N), Parameter("W", ("O",), M, M)

PLACE, _VALUE = Parameter("S", (_k,), M, SIZE), Parameter("W", ("V", _k), SIZE, SIZE)

BACK = PLACE * _VALUE * PLACE.T  # from the features to those of a head, and back

JOINED = IndexedSum(PATTERN * X * BACK, _k, 1, HEADS)  # the heads side by side

W_HV = IndexedSum(Kronecker(PATTERN, BACK.T), _k, 1, HEADS)

W_O = Kronecker(Identity(N), OUTPUT.T)

W_HVO = IndexedSum(Kronecker(PATTERN, (BACK * OUTPUT).T), _k, 1, HEADS)


def _pattern(tokens: int, head: int, causal: bool) -> ImmutableMatrix:
    pattern = matrix("H", tokens, tokens, head)
    return ImmutableMatrix(tokens, tokens, lambda n, m: 0 if causal and m > n else pattern[n, m])


def _slices(features: int, heads: int) -> list[ImmutableMatrix]:
    size = features // heads
    return [ImmutableMatrix(features, size, lambda row, c, h=h: int(row == h * size + c)) for h in range(heads)]


class Attention(NamedTuple):
    """The three matrices of multi-head attention with the pattern held, for small sizes.

    Args:
        value: `vec(Ĥ) = W'_{HV} vec(x)`.
        output: `vec(Ĥ W_O) = W'_O vec(Ĥ)`.
        whole: `vec(Ĥ W_O) = W'_{HVO} vec(x)`.
    """

    value: Explicit
    output: Explicit
    whole: Explicit


def attention(tokens: int, features: int, heads: int, *, sliced: bool = True, causal: bool = False) -> Attention:
    """Return `W'_{HV}`, `W'_O` and `W'_{HVO}` as explicit matrices, and as Kronecker sums.

    `W'_{HVO} = Σ_h H_h ⊗ (S_h W_{V,h} W_{O,h})ᵀ = W'_O W'_{HV}`.

    Args:
        tokens: N.
        features: M.
        heads: h.
        sliced: whether a head sees its slice of the features only, `x_h = x S_h`, as in the papers; else all features.
        causal: whether tokens see only earlier ones.

    Raises:
        SymbolicError: if a size is no positive integer, or the heads don't divide the features.

    Example:
        >>> whole = attention(2, 2, 2).whole
        >>> print(whole.agree, whole.density)
        True 1

    Source: Wang & Li, Eq. 7–10, which leave `W'_{HVO}` out as too complex.
    """
    check_sizes(tokens=tokens, features=features, heads=heads)
    if features % heads:
        raise SymbolicError(f"{features} features can't be sliced into {heads} heads: give a multiple of the heads")
    size = features // heads
    x, w_o = matrix("x", tokens, features), matrix("W", features, features, "O")
    patterns = [_pattern(tokens, h + 1, causal) for h in range(heads)]
    slices = _slices(features, heads)
    inputs = slices if sliced else [ImmutableMatrix.eye(features)] * heads
    values = [matrix("V", size if sliced else features, size, h + 1) for h in range(heads)]
    mixed = [p * x * s * v for p, s, v in zip(patterns, inputs, values, strict=True)]
    concatenated = ImmutableMatrix.hstack(*mixed)
    hat = matrix("y", tokens, features)

    def summed(right: list[ImmutableMatrix]) -> ImmutableMatrix:
        first, *rest = (kronecker(p, r.T) for p, r in zip(patterns, right, strict=True))
        return sum(rest, first)

    placed = [s * v * place.T for s, v, place in zip(inputs, values, slices, strict=True)]
    value = Explicit(matrix_of(concatenated, x), summed(placed))
    output = Explicit(matrix_of(hat * w_o, hat), kronecker(ImmutableMatrix.eye(tokens), w_o.T))
    whole = Explicit(matrix_of(concatenated * w_o, x), summed([p * w_o for p in placed]))
    return Attention(value, output, whole)


def pattern(tokens: int, features: int) -> ImmutableMatrix:
    """Return the pattern `H` of one head from the matrix of scores, `x W_{QK} xᵀ / √M` with `W_{QK} = W_Q W_Kᵀ`."""
    check_sizes(tokens=tokens, features=features)
    x = matrix("x", tokens, features)
    w_q, w_k = (matrix("W", features, features, name) for name in "QK")
    weights = (x * (w_q * w_k.T) * x.T / sqrt(features)).expand().applyfunc(exp)
    return ImmutableMatrix(tokens, tokens, lambda n, m: weights[n, m] / sum(weights[n, :]))


def written_out_pattern(tokens: int, features: int) -> ImmutableMatrix:
    """Return the pattern `H` of one head entry by entry, from the query of one token and the keys of all."""
    # `H_{n,m} = exp(Σ_c q_{n,c} k_{m,c} / √M) / Σ_l exp(Σ_c q_{n,c} k_{l,c} / √M)`, with `q_{n,c} = Σ_a x_{n,a}
    # (W_Q)_{a,c}` and `k` likewise.
    check_sizes(tokens=tokens, features=features)
    x, size = matrix("x", tokens, features), range(features)

    def projected(name: str, n: int, c: int) -> Expr:
        weights = matrix("W", features, features, name)
        return sum(x[n, a] * weights[a, c] for a in size)

    def weight(n: int, m: int) -> Expr:
        score = sum(projected("Q", n, c) * projected("K", m, c) for c in size)
        return exp((score / sqrt(features)).expand())

    return ImmutableMatrix(tokens, tokens, lambda n, m: weight(n, m) / sum(weight(n, l) for l in range(tokens)))


def attention_derivation(tokens: int = 2, features: int = 2, heads: int = 2) -> Derivation:
    """Derive attention as one Kronecker sum for all sizes, and compare it with explicit matrices.

    Example:
        >>> attention_derivation().verified
        True
    """
    small = attention(tokens, features, heads)
    sizes = f"entry by entry, N = {tokens}, M = {features}, {heads} heads"
    names = {k: Parameter("W'", (k,), N * M, N * M) for k in ("HV", "O", "HVO")}
    hat, query, key = Variable("H^", (), N, M), Parameter("W", ("Q",), M, M), Parameter("W", ("K",), M, M)
    steps = (
        let(Parameter("H^", (), N, M), JOINED, "heads side by side: S_k picks the features of head k"),
        equality(Vec(JOINED), W_HV * Vec(X), "so W'_{HV} = Σ H_k ⊗ (S_k W_{V,k} S_k^T)^T"),
        equality(Vec(hat * OUTPUT), W_O * Vec(hat), "W'_O = I_N ⊗ W_O^T"),
        equality(Vec(JOINED * OUTPUT), W_HVO * Vec(X), "W'_{HVO}: the expression left out in the papers"),
        equality(W_HVO, W_O * W_HV, "order of the factors: W'_{HVO} = W'_O W'_{HV}"),
        Step(names["HV"], small.value.matrix, sizes, small.value.agree),
        Step(names["O"], small.output.matrix, sizes, small.output.agree),
        Step(names["HVO"], small.whole.matrix, sizes, small.whole.agree),
        equality(X * query * Transpose(X * key), X * (query * key.T) * X.T, "Eq. 35: the scores, W_{QK} = W_Q W_K^T"),
        _compared_pattern(2, 1),
    )
    premises = ("The pattern H_k of every head is held: it is treated as a constant, at its value on this input.",)
    remark = "At another input H_k is another matrix, and so is W'_{HVO}."
    return Derivation("Attention as one matrix on vec(x)", steps, remark, premises=premises)


def pattern_derivation() -> Derivation:
    """Compare every entry of the pattern with the formula written out, at several sizes.

    Example:
        >>> pattern_derivation().verified
        True
    """
    sizes = ((1, 1), (2, 1), (2, 2), (3, 2))
    steps = tuple(_compared_pattern(*size) for size in sizes)
    return Derivation("The attention pattern, entry by entry", steps)


def _compared_pattern(tokens: int, features: int) -> Step:
    whole, entry = pattern(tokens, features), written_out_pattern(tokens, features)
    words = f"Eq. 35, every entry written out, N = {tokens}, M = {features}"
    return Step(Parameter("H", (1,), tokens, tokens), entry, words, whole == entry)
