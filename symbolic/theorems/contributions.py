"""Derive the contributions: one read-out pulled back through the linear path splits the output exactly."""

from typing import Any

from sympy import MatrixExpr, Transpose

from symbolic.equality.definition import Definition
from symbolic.expressions.constructors import ones
from symbolic.expressions.diagonal import Diagonal
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.hypotheses import of_a_held_stack
from symbolic.proof.step import Step, equality, induction_hypothesis, let, let_each
from symbolic.theorems.residual_stack import ResidualStack, added, i, j


def contributions(stack: ResidualStack | None = None) -> Derivation:
    """Derive `⟨u_L, x_L⟩ = ⟨u_0, x_0⟩ + Σ_j ⟨u_j, b'_{j,3}⟩ + Σ_j ⟨u_j, W'_{j,3} σ(·)⟩` for every depth, by induction.

    The read-out is pulled back once, `u_{i} = W'_{i+1,1}ᵀ u_{i+1}`, and every term is read by the covector of its own
    layer.

    Args:
        stack: the symbols.

    Example:
        >>> contributions().verified
        True
    """
    s = stack or ResidualStack()
    k = i + 1

    def u(m: object) -> Parameter:
        return Parameter("u", (m,), s.width, 1)

    def y(m: object) -> Parameter:
        return Parameter("y", (m,), 1, 1)

    def term(m: Any, t: int) -> MatrixExpr:
        return s.activated(s.pre_activation(m, t), m, t)

    def share(m: Any) -> MatrixExpr:
        read = Transpose(u(m))
        return added(read * s.b(m, 3), (read * s.W(m, 3, t) * term(m, t) for t in s.terms))

    def over_neurons(t: int) -> Step:
        neurons = Transpose(ones(s.sizes[t - 1])) * (Diagonal(Transpose(s.W(k, 3, t)) * u(k)) * term(k, t))
        whole = Transpose(u(k)) * s.W(k, 3, t) * term(k, t)
        return equality(whole, neurons, "split over neurons: the sum of the entries of a vector")

    pulled = Definition(u(i), Transpose(s.W(k, 1)) * u(k))
    read = Definition(y(i), Transpose(u(i)) * s.x(i), (i,))
    step = Definition(y(k), y(i) + share(k), (i,))
    start = Transpose(u(0)) * s.x(0)
    hypothesis = Definition(y(i), start + IndexedSum(share(j), j, 1, i))
    steps = (
        let(pulled.left, pulled.right, "the read-out, pulled back one layer"),
        let(read.left, read.right, "what it reads"),
        equality(
            y(k),
            step.right,
            "one layer, by Eq. 20",
            (read, s.equation_20, pulled),
        ),
        equality(y(0), start + IndexedSum(share(j), j, 1, 0), "base", (read,)),
        induction_hypothesis(hypothesis.left, hypothesis.right),
        equality(y(k), start + IndexedSum(share(j), j, 1, k), "so all layers", (hypothesis, step)),
        *(
            equality(
                Transpose(u(k)) * s.C(j, k, t),
                Transpose(u(i)) * s.C(j, i, t),
                "a term is read the same in every layer that it is carried through, j ≤ i",
                (pulled, Definition(s.C(j, k, t), s.W(k, 1) * s.C(j, i, t))),
            )
            for t in s.terms
        ),
        *(over_neurons(t) for t in s.terms),
    )
    remark = "So the shares of the input, of the terms and of the biases sum to the output, exactly."
    read_out = "The read-out u of the last layer is any vector."
    premises = (*of_a_held_stack(s.equation_20), read_out)
    carried = let_each(*(rule for rule in s.recursions if rule.left.letter == "C"))
    return Derivation("Contributions, and their sum", steps, remark, given=carried, premises=premises)
