"""Prove Lemma 1: a matrix times a sum of the universal approximation theorem is such a sum."""

from sympy import symbols

from symbolic.equality.definition import Definition
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import equality, let
from symbolic.theorems.residual_stack import j


def lemma_1() -> Derivation:
    """Prove Lemma 1: a matrix times a UAT sum is a UAT sum.

    `β Σ_j α_j σ(W_jᵀ x + b_j) = Σ_j (β α_j) σ(W_jᵀ x + b_j)`, for any number of terms and any sizes.

    Example:
        >>> lemma_1().verified
        True

    Source: Wang & Li, Lemma 1 (Eq. 19).
    """
    n, m, k, r, terms = symbols("n m k r N", integer=True, positive=True)
    alpha, beta = Parameter("alpha", (j,), k, m), Parameter("beta", (), r, k)
    renamed = Parameter("alpha*", (j,), r, m)
    weight, bias, x = Parameter("W", (j,), n, m), Parameter("b", (j,), m, 1), Parameter("x", (), n, 1)
    activation = Activation(weight.T * x + bias)
    scaled = IndexedSum(beta * alpha * activation, j, 1, terms)
    renaming = Definition(renamed, beta * alpha, (j,))
    steps = (
        equality(beta * IndexedSum(alpha * activation, j, 1, terms), scaled, "β multiplied into the sum, Eq. 19"),
        let(renamed, beta * alpha, "let"),
        equality(scaled, IndexedSum(renamed * activation, j, 1, terms), "again a UAT sum", (renaming,)),
    )
    return Derivation("Lemma 1: a matrix times a UAT sum is a UAT sum", steps)
