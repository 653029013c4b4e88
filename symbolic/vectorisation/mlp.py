"""Derive the matrix-vector form of the MLP, in both orientations."""

from sympy import Identity, symbols

from symbolic.expressions.activation import Activation
from symbolic.expressions.diagonal import Diagonal
from symbolic.expressions.hadamard import Hadamard
from symbolic.expressions.kronecker import Kronecker
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.expressions.vec import Vec
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import equality


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
    steps = (
        equality(Vec(features), Kronecker(eye_n, w2.T) * inner + Kronecker(ones, b2), "acting on features"),
        equality(Vec(rows), Kronecker(r2, eye_m) * rows_inner + Vec(c2), "acting on rows, as printed in Eq. 6"),
        equality(Hadamard(gate, s), Diagonal(gate) * s, "a gate, entry by entry: g ⊙ s = diag(g) s"),
    )
    return Derivation("The MLP on vec(x)", steps)
