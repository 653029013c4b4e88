"""The matrix-vector method: linear maps as matrices on `vec(x)`, entry by entry and as Kronecker sums."""

from fractions import Fraction
from typing import NamedTuple

from sympy import Identity, ImmutableMatrix, Symbol, Transpose, exp, sqrt, symbols

from symbolic.algebra import Hadamard, Kronecker
from symbolic.definitions import Definition
from symbolic.derivation import Derivation, Step, definition, equality
from symbolic.errors import SymbolicError
from symbolic.explicit import density, entries, kronecker, matrix_of, same
from symbolic.operations import Activation, Diagonal, IndexedSum, Vec
from symbolic.symbols import Parameter, Variable

_k = Symbol("k", integer=True, nonnegative=True)


def check_sizes(**sizes: int) -> None:
    """Raise if a size isn't a positive integer.

    Args:
        sizes: the sizes by their names.

    Raises:
        SymbolicError: naming all that are wrong.
    """
    wrong = [
        f"{name} = {size}"
        for name, size in sizes.items()
        if isinstance(size, bool) or not isinstance(size, int) or size < 1
    ]
    if wrong:
        raise SymbolicError(f"{', '.join(wrong)}: entries are written out for positive whole numbers only")


class Explicit(NamedTuple):
    """One linear map as an explicit matrix, and the same as a Kronecker expression.

    Args:
        matrix: `W'` with `vec(y) = W' vec(x)`, read off from the formula of `y` entry by entry.
        kronecker: the Kronecker expression, entry by entry.
    """

    matrix: ImmutableMatrix
    kronecker: ImmutableMatrix

    @property
    def agree(self) -> bool:
        """Whether the two are equal in every entry."""
        return same(self.matrix, self.kronecker)

    @property
    def density(self) -> Fraction:
        """The share of entries that aren't zero."""
        return density(self.matrix)


def matrix(letter: str, rows: int, columns: int, *lower: object) -> ImmutableMatrix:
    """Return an explicit matrix of symbols, `W_{1,1}, W_{1,2}, …`.

    Args:
        letter: its letter.
        rows: number of rows.
        columns: number of columns.
        lower: its indices.
    """
    return entries(Parameter(letter, lower, rows, columns))


def linear_on_rows(tokens: int, features: int) -> Explicit:
    """Return `W'` of `y = W x`, the papers' orientation: `W ⊗ I_M`.

    Args:
        tokens: N.
        features: M.

    Example:
        >>> print(linear_on_rows(2, 3).agree, linear_on_rows(2, 3).density)
        True 1/3

    Source: Wang & Li, Eq. 5.
    """
    check_sizes(tokens=tokens, features=features)
    w, x = matrix("W", tokens, tokens), matrix("x", tokens, features)
    return Explicit(matrix_of(w * x, x), kronecker(w, ImmutableMatrix.eye(features)))


def linear_on_features(tokens: int, features: int, outputs: int | None = None) -> Explicit:
    """Return `W'` of `y = x W`, the orientation of a Transformer's MLP: `I_N ⊗ Wᵀ`.

    Args:
        tokens: N.
        features: M.
        outputs: columns of W; M if absent.

    Example:
        >>> print(linear_on_features(2, 3).agree, linear_on_features(2, 3).density)
        True 1/2
    """
    outputs = features if outputs is None else outputs
    check_sizes(tokens=tokens, features=features, outputs=outputs)
    w, x = matrix("W", features, outputs), matrix("x", tokens, features)
    return Explicit(matrix_of(x * w, x), kronecker(ImmutableMatrix.eye(tokens), w.T))


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
    """Return the pattern `H` of one head entry by entry, from `x` and `W_{QK} = W_Q W_Kᵀ`.

    Args:
        tokens: N.
        features: M, of the head's input.

    Raises:
        SymbolicError: if a size is no positive integer.

    Source: Wang & Li, Eq. 35.
    """
    check_sizes(tokens=tokens, features=features)
    x, w = matrix("x", tokens, features), matrix("W", features, features, "QK")
    weights = (x * w * x.T / sqrt(features)).expand().applyfunc(exp)
    return ImmutableMatrix(tokens, tokens, lambda n, m: weights[n, m] / sum(weights[n, :]))


def linear_derivation(tokens: int = 2, features: int = 2) -> Derivation:
    """Derive `W'` of a linear map in both orientations: for all sizes, and entry by entry for small ones.

    Args:
        tokens: N of the explicit matrices.
        features: M of the explicit matrices.

    Source: Wang & Li, Eq. 5.
    """
    n, m, p = symbols("N M P", integer=True, positive=True)
    x = Variable("x", (), n, m)
    rows, columns = Parameter("W", (), n, n), Parameter("W", (), m, p)
    on_rows, on_features = linear_on_rows(tokens, features), linear_on_features(tokens, features)
    small = f"entry by entry, N = {tokens}, M = {features}"
    steps = (
        equality(Vec(rows * x), Kronecker(rows, Identity(m)) * Vec(x), "acting on rows: W' = W ⊗ I_M"),
        Step(Kronecker(Parameter("W", (), tokens, tokens), Identity(features)), on_rows.matrix, small, on_rows.agree),
        equality(Vec(x * columns), Kronecker(Identity(n), columns.T) * Vec(x), "acting on features: W' = I_N ⊗ W^T"),
        Step(
            Kronecker(Identity(tokens), Parameter("W", (), features, features).T),
            on_features.matrix,
            small,
            on_features.agree,
        ),
    )
    return Derivation("Linear maps as matrices on vec(x)", steps)


def attention_derivation(tokens: int = 2, features: int = 2, heads: int = 2) -> Derivation:
    """Derive attention as one Kronecker sum for all sizes, and compare it with explicit matrices.

    Args:
        tokens: N of the explicit matrices.
        features: M of the explicit matrices.
        heads: h of the explicit matrices.

    Example:
        >>> attention_derivation().verified
        True

    Source: Wang & Li, Eq. 7–10 and 35.
    """
    n, m, size, count = symbols("N M m h", integer=True, positive=True)
    x = Variable("x", (), n, m)
    held = Parameter("H", (_k,), n, n)
    place = Parameter("S", (_k,), m, size)
    value, output = Parameter("W", ("V", _k), size, size), Parameter("W", ("O",), m, m)
    query, key = Parameter("W", ("Q",), m, m), Parameter("W", ("K",), m, m)
    hat = IndexedSum(held * x * place * value * place.T, _k, 1, count)
    whole = hat * output
    w_hv = IndexedSum(Kronecker(held, (place * value * place.T).T), _k, 1, count)
    w_o = Kronecker(Identity(n), output.T)
    w_hvo = IndexedSum(Kronecker(held, (place * value * place.T * output).T), _k, 1, count)
    small = attention(tokens, features, heads)
    sizes = f"entry by entry, N = {tokens}, M = {features}, {heads} heads"
    names = {k: Parameter("W'", (k,), n * m, n * m) for k in ("HV", "O", "HVO")}
    steps = (
        definition(Parameter("H^", (), n, m), hat, "heads side by side: S_k picks the features of head k"),
        equality(Vec(hat), w_hv * Vec(x), "so W'_{HV} = Σ H_k ⊗ (S_k W_{V,k} S_k^T)^T"),
        equality(Vec(Variable("H^", (), n, m) * output), w_o * Vec(Variable("H^", (), n, m)), "W'_O = I_N ⊗ W_O^T"),
        equality(Vec(whole), w_hvo * Vec(x), "W'_{HVO}: the expression left out in the papers"),
        equality(w_hvo, w_o * w_hv, "order of the factors: W'_{HVO} = W'_O W'_{HV}"),
        Step(names["HV"], small.value.matrix, sizes, small.value.agree),
        Step(names["O"], small.output.matrix, sizes, small.output.agree),
        Step(names["HVO"], small.whole.matrix, sizes, small.whole.agree),
        equality(x * query * Transpose(x * key), x * (query * key.T) * x.T, "Eq. 35: the scores, W_{QK} = W_Q W_K^T"),
        Step(Parameter("H", (1,), 2, 2), pattern(2, 1), "Eq. 35, entry by entry, N = 2, M = 1", _rows_sum_to_one(2, 2)),
    )
    return Derivation("Attention as one matrix on vec(x)", steps, "With the pattern held: it moves with the input.")


def _rows_sum_to_one(tokens: int, features: int) -> bool:
    held = pattern(tokens, features)
    return all(sum(held[n, :]).together() == 1 for n in range(tokens))


def normalisation_derivation() -> Derivation:
    """Derive LayerNorm and RMSNorm with the scale held as one matrix and one vector on `vec(x)`, for all sizes.

    Example:
        >>> normalisation_derivation().verified
        True
    """
    n, m = symbols("N M", integer=True, positive=True)
    x, scale, gain, shift = (
        Variable("x", (), n, m),
        Parameter("r", (), n, 1),
        Parameter("gamma", (), m, 1),
        Parameter("beta", (), m, 1),
    )
    ones_m, ones_n = Parameter("1", ("M",), m, 1), Parameter("1", ("N",), n, 1)
    centre = Parameter("Z", (), m, m)
    mean = Definition(centre, Identity(m) - (1 / m) * ones_m * ones_m.T)
    centred = x - (1 / m) * (x * ones_m) * ones_m.T
    layer = Diagonal(scale) * centred * Diagonal(gain) + ones_n * shift.T
    rms = Diagonal(scale) * x * Diagonal(gain)
    matrix = Kronecker(Diagonal(scale), (centre * Diagonal(gain)).T)
    steps = (
        definition(centre, mean.right, "subtracts the mean over features"),
        equality(
            layer,
            Diagonal(scale) * x * centre * Diagonal(gain) + ones_n * shift.T,
            "LayerNorm, its scales r = 1/s held",
            (mean,),
        ),
        equality(Vec(layer), matrix * Vec(x) + Kronecker(ones_n, shift), "D' and d' of LayerNorm", (mean,)),
        equality(Vec(rms), Kronecker(Diagonal(scale), Diagonal(gain)) * Vec(x), "D' of RMSNorm"),
    )
    return Derivation("Normalisation with its scale held", steps)


def mlp_derivation() -> Derivation:
    """Derive the matrix-vector form of an MLP in both orientations, biases and a gate with it.

    Example:
        >>> mlp_derivation().verified
        True

    Source: Wang & Li, Eq. 6 and 29.
    """
    n, m, p = symbols("N M P", integer=True, positive=True)
    x, ones = Variable("x", (), n, m), Parameter("1", ("N",), n, 1)
    w1, w2 = Parameter("W", (1,), m, p), Parameter("W", (2,), p, m)
    b1, b2 = Parameter("b", (1,), p, 1), Parameter("b", (2,), m, 1)
    r1, r2 = Parameter("R", (1,), n, n), Parameter("R", (2,), n, n)
    c1, c2 = Variable("b", (1,), n, m), Variable("b", (2,), n, m)
    eye_n, eye_m = Identity(n), Identity(m)
    features = Activation(x * w1 + ones * b1.T) * w2 + ones * b2.T
    inner = Activation(Kronecker(eye_n, w1.T) * Vec(x) + Kronecker(ones, b1))
    rows = r2 * Activation(r1 * x + c1) + c2
    rows_inner = Activation(Kronecker(r1, eye_m) * Vec(x) + Vec(c1))
    gate = Parameter("g'", (), n * p, 1)
    s = Parameter("s'", (), n * p, 1)
    g3, s3 = (entries(Parameter(letter, (), 3, 1)) for letter in "gs")
    hadamard = same(ImmutableMatrix.diag(*g3) * s3, ImmutableMatrix([a * b for a, b in zip(g3, s3, strict=True)]))
    steps = (
        equality(Vec(features), Kronecker(eye_n, w2.T) * inner + Kronecker(ones, b2), "acting on features"),
        equality(Vec(rows), Kronecker(r2, eye_m) * rows_inner + Vec(c2), "acting on rows, as printed in Eq. 6"),
        Step(Hadamard(gate, s), Diagonal(gate) * s, "a gate, entry by entry: g ⊙ s = diag(g) s", hadamard),
    )
    return Derivation("The MLP on vec(x)", steps)
