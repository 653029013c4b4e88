"""Compute the diamond product of the papers' earlier versions, `W ⋄ x = Wᵀ x`, and prove its identities."""

from sympy import ImmutableMatrix, MatrixExpr, Transpose, symbols

from symbolic.expressions.matrix import check_product
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step, equality
from symbolic.vectorisation.entries import entries, same


def diamond(left: MatrixExpr, right: MatrixExpr) -> MatrixExpr:
    """Return `left ⋄ right = leftᵀ right`: every column of the left factor times every column of the right one."""
    transposed = Transpose(left).doit(deep=False) if isinstance(left, Transpose) else Transpose(left)
    check_product(transposed, right)
    return transposed * right


def column_sums(w: ImmutableMatrix, x: ImmutableMatrix) -> ImmutableMatrix:
    """Return `W ⋄ x` as the papers compute it: entry i is the i-th column of W times x, summed."""
    return ImmutableMatrix([sum(w[k, i] * x[k] for k in range(w.rows)) for i in range(w.cols)])


def diamond_derivation() -> Derivation:
    """Prove that `W ⋄ x = Wᵀ x`, its two identities, and the bracketing that they need.

    Example:
        >>> diamond_derivation().verified
        True
    """
    # Without brackets both identities are read from the left, `A ⋄ B ⋄ x = (A ⋄ B) ⋄ x`; read from the right they fail.
    d = symbols("d", integer=True, positive=True)
    w1, w2, x = Parameter("W", (1,), d, d), Parameter("W", (2,), d, d), Parameter("x", (), d, 1)
    w, v = entries(Parameter("W", (), 3, 2)), entries(Parameter("x", (), 3, 1))
    steps = (
        Step(
            Transpose(Parameter("W", (), 3, 2)) * Parameter("x", (), 3, 1),
            column_sums(w, v),
            "W ⋄ x, entry by entry, of a W of 3 × 2",
            same(w.T * v, column_sums(w, v)),
        ),
        equality(diamond(w1, diamond(w2, x)), diamond(diamond(w2.T, w1), x), "W_1 ⋄ [x ⋄ W_2] = (W_2^T ⋄ W_1) ⋄ x"),
        equality(diamond(w2, diamond(w1, x)), diamond(diamond(w1.T, w2), x), "[W_1 ⋄ x] ⋄ W_2 = (W_1^T ⋄ W_2) ⋄ x"),
        equality(diamond(diamond(w1, w2), x), w2.T * w1 * x, "from the left: (A ⋄ B) ⋄ x = B^T A x"),
        equality(
            diamond(w1, diamond(w2, x)), w1.T * w2.T * x, "from the right: A ⋄ (B ⋄ x) = A^T B^T x, another vector"
        ),
    )
    remark = "It is not associative, so the identities need their brackets."
    definition = "Entry i of W ⋄ x is the sum over k of W_{k,i} x_k, so that A ⋄ B = A^T B."
    return Derivation("The diamond product", steps, remark, premises=(definition,))
