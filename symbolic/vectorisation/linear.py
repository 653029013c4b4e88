"""Derive linear maps on rows and on features as matrices on `vec(x)`."""

from sympy import Identity, ImmutableMatrix, symbols

from symbolic.equality.definition import Definition
from symbolic.expressions.activation import Activation
from symbolic.expressions.operations import Diagonal, Hadamard, Kronecker, Vec
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step, equality, let
from symbolic.vectorisation.entries import Explicit, check_sizes, kronecker, matrix, matrix_of


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


def linear_derivation(tokens: int = 2, features: int = 2) -> Derivation:
    """Derive `W'` of a linear map in both orientations: for all sizes, and entry by entry for small ones."""
    n, m, p = symbols("N M P", integer=True, positive=True)
    x = Variable("x", (), n, m)
    rows, columns = Parameter("R", (), n, n), Parameter("W", (), m, p)
    on_rows, on_features = linear_on_rows(tokens, features), linear_on_features(tokens, features)
    renamed = dict(zip(matrix("W", tokens, tokens), matrix("R", tokens, tokens), strict=True))
    entries = on_rows.matrix.xreplace(renamed)
    small = f"entry by entry, N = {tokens}, M = {features}"
    steps = (
        equality(Vec(rows * x), Kronecker(rows, Identity(m)) * Vec(x), "acting on rows, Eq. 5: W' = R ⊗ I_M"),
        Step(Kronecker(Parameter("R", (), tokens, tokens), Identity(features)), entries, small, on_rows.agree),
        equality(Vec(x * columns), Kronecker(Identity(n), columns.T) * Vec(x), "acting on features: W' = I_N ⊗ W^T"),
        Step(
            Kronecker(Identity(tokens), Parameter("W", (), features, features).T),
            on_features.matrix,
            small,
            on_features.agree,
        ),
    )
    return Derivation("Linear maps as matrices on vec(x)", steps)


def mlp_derivation() -> Derivation:
    """Derive the matrix-vector form of an MLP in both orientations, biases and a gate with it.

    Example:
        >>> mlp_derivation().verified
        True
    """
    n, m, p = symbols("N M P", integer=True, positive=True)
    x, ones = Variable("x", (), n, m), Parameter("1", ("N",), n, 1)
    w1, w2 = Parameter("W", (1,), m, p), Parameter("W", (2,), p, m)
    b1, b2 = Parameter("b", (1,), p, 1), Parameter("b", (2,), m, 1)
    r1, r2 = Parameter("R", (1,), n, n), Parameter("R", (2,), n, n)
    c1, c2 = Variable("c", (1,), n, m), Variable("c", (2,), n, m)
    eye_n, eye_m = Identity(n), Identity(m)
    features = Activation(x * w1 + ones * b1.T) * w2 + ones * b2.T
    inner = Activation(Kronecker(eye_n, w1.T) * Vec(x) + Kronecker(ones, b1))
    rows = r2 * Activation(r1 * x + c1) + c2
    rows_inner = Activation(Kronecker(r1, eye_m) * Vec(x) + Vec(c1))
    gate = Parameter("g'", (), n * p, 1)
    s = Parameter("s'", (), n * p, 1)
    steps = (
        equality(Vec(features), Kronecker(eye_n, w2.T) * inner + Kronecker(ones, b2), "acting on features"),
        equality(
            Vec(rows), Kronecker(r2, eye_m) * rows_inner + Vec(c2), "acting on rows, Eq. 6 with R and c for W and b"
        ),
        equality(Hadamard(gate, s), Diagonal(gate) * s, "a gate, entry by entry: g ⊙ s = diag(g) s"),
    )
    return Derivation("The MLP on vec(x)", steps)


def normalisation_derivation() -> Derivation:
    """Derive LayerNorm and RMSNorm with the scale held as one matrix and one vector on `vec(x)`, for all sizes.

    Example:
        >>> normalisation_derivation().verified
        True
    """
    n, m = symbols("N M", integer=True, positive=True)
    x, scale = Variable("x", (), n, m), Parameter("r", (), n, 1)
    gain, shift = Parameter("gamma", (), m, 1), Parameter("beta", (), m, 1)
    ones_m, ones_n = Parameter("1", ("M",), m, 1), Parameter("1", ("N",), n, 1)
    centre = Parameter("Z", (), m, m)
    mean = Definition(centre, Identity(m) - (1 / m) * ones_m * ones_m.T)
    centred = x - (1 / m) * (x * ones_m) * ones_m.T
    layer = Diagonal(scale) * centred * Diagonal(gain) + ones_n * shift.T
    rms = Diagonal(scale) * x * Diagonal(gain)
    matrix = Kronecker(Diagonal(scale), (centre * Diagonal(gain)).T)
    steps = (
        let(centre, mean.right, "subtracts the mean over features"),
        equality(
            layer,
            Diagonal(scale) * x * centre * Diagonal(gain) + ones_n * shift.T,
            "LayerNorm, its scales r = 1/s held",
            (mean,),
        ),
        equality(Vec(layer), matrix * Vec(x) + Kronecker(ones_n, shift), "D' and d' of LayerNorm", (mean,)),
        equality(Vec(rms), Kronecker(Diagonal(scale), Diagonal(gain)) * Vec(x), "D' of RMSNorm"),
    )
    held = "The scale r of every token is held: it is treated as a constant, at its value on this input."
    return Derivation("Normalisation with its scale held", steps, premises=(held,))
