"""Derive linear maps on rows and on features as matrices on `vec(x)`."""

from sympy import Identity, ImmutableMatrix, symbols

from symbolic.expressions.kronecker import Kronecker
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.expressions.vec import Vec
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step, equality
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
