"""Derive the collapse: with every activation written as slope times pre-activation, the stack is one affine map."""

from typing import Any

from sympy import Identity, MatrixExpr, Transpose, ZeroMatrix

from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal
from symbolic.expressions.constructors import ones
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.operations import Diagonal
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.hypotheses import of_a_held_stack
from symbolic.proof.step import Equation, Step, equality, equations, induction_hypothesis, let, let_each, suppose
from symbolic.theorems.residual_stack import ResidualStack, added, i, j

_STEP = "the recursions and the induction hypothesis"


def collapse(stack: ResidualStack | None = None) -> Derivation:
    """Derive `x'_i = W(x_0) x'_0 + b(x_0)` for every depth, by induction.

    Example:
        >>> collapse().verified
        True
    """
    # With the slope held, `σ(z_i) = diag(s_i) z_i + t_i`, where `t_i = σ(0)`, every layer is affine, so the stack is.
    s, k = stack or ResidualStack(), i + 1
    x = s.x

    def slope(m: Any, t: int) -> MatrixExpr:
        return Diagonal(s.vector("s", m, t))

    def inside(m: Any, t: int) -> MatrixExpr:
        """Return the matrix that multiplies the stream in a pre-activation, through earlier terms of its layer too."""
        return added(s.W(m, 2, t), (s.coupling(m, t, r) * slope(m, r) * inside(m, r) for r in s.earlier(t)))

    def bias(m: Any, t: int) -> MatrixExpr:
        before = ((r, slope(m, r) * bias(m, r) + s.vector("t", m, r)) for r in s.earlier(t))
        return added(s.b(m, 2, t), (s.coupling(m, t, r) * activation for r, activation in before))

    def jacobian(m: Any) -> Parameter:
        return Parameter("J", (m,), s.width, s.width)

    def whole(m: Any) -> Parameter:
        return Parameter("Wbar", (m,), s.width, s.width)

    def rest(m: Any) -> Parameter:
        return Parameter("bbar", (m,), s.width, 1)

    def shares(m: Any, to: Any) -> MatrixExpr:
        terms = (s.C(m, to, t) * slope(m, t) * inside(m, t) * whole(m - 1) for t in s.terms)
        return added(ZeroMatrix(s.width, s.width), terms)

    held = {t: slope(k, t) * (inside(k, t) * x(i) + bias(k, t)) + s.vector("t", k, t) for t in s.terms}
    layer = Definition(x(k), added(s.W(k, 1) * x(i) + s.b(k, 3), (s.W(k, 3, t) * held[t] for t in s.terms)), (i,))
    activations: dict[MatrixExpr, MatrixExpr] = {}
    slopes = []
    for t in s.terms:
        z, offset = s.pre_activation(k, t), s.vector("t", k, t)
        slopes.append(suppose(s.activated(z, k, t), slope(k, t) * z + offset, "They are held too, and"))
        activations[slopes[-1].left] = slope(k, t) * z.xreplace(activations) + offset
    replaced = s.general_term(k).xreplace(activations)
    used = (*equations((s.equation_20,)), *(Equation(each.left, each.right) for each in slopes))
    through = added(s.W(k, 1), (s.W(k, 3, t) * slope(k, t) * inside(k, t) for t in s.terms))
    offsets = added(s.b(k, 3), (s.W(k, 3, t) * (slope(k, t) * bias(k, t) + s.vector("t", k, t)) for t in s.terms))
    rules = (
        Definition(jacobian(k), through, (i,)),
        Definition(whole(0), Identity(s.width)),
        Definition(whole(k), jacobian(k) * whole(i), (i,)),
        Definition(rest(0), ZeroMatrix(s.width, 1)),
        Definition(rest(k), jacobian(k) * rest(i) + offsets, (i,)),
    )
    hypothesis = Definition(x(i), whole(i) * x(0) + rest(i))
    split = Definition(whole(i), s.P(i) + IndexedSum(shares(j, i), j, 1, i))
    steps = (
        Step(x(k), layer.right, "Eq. 20 with σ(z) = diag(s) z + t", equal(replaced, layer.right), using=used),
        *let_each(*rules),
        equality(x(0), whole(0) * x(0) + rest(0), "base: by the recursions", rules),
        induction_hypothesis(x(i), hypothesis.right),
        equality(
            x(k), whole(k) * x(0) + rest(k), f"step: by the equation of the layer, {_STEP}", (hypothesis, layer, *rules)
        ),
        equality(
            whole(0), s.P(0) + IndexedSum(shares(j, 0), j, 1, 0), "base: by the recursions", (*rules, *s.recursions)
        ),
        induction_hypothesis(whole(i), split.right, "induction hypothesis: the linear path, and each term's share"),
        equality(
            whole(k), s.P(k) + IndexedSum(shares(j, k), j, 1, k), f"step: by {_STEP}", (split, *rules, *s.recursions)
        ),
    )
    words = "A pre-activation of this input has slopes s_{i+1} and offsets t_{i+1}, such as t_{i+1} = σ(0)."
    given = let_each(*(rule for rule in s.recursions if rule.left.letter in "PC"))
    return Derivation(
        "The collapse to one affine map", steps, given=given, premises=(*of_a_held_stack(s.equation_20), words, *slopes)
    )


def contributions(stack: ResidualStack | None = None) -> Derivation:
    """Derive `⟨u_L, x_L⟩ = ⟨u_0, x_0⟩ + Σ_j ⟨u_j, b'_{j,3}⟩ + Σ_j ⟨u_j, W'_{j,3} σ(·)⟩` for every depth, by induction.

    Example:
        >>> contributions().verified
        True
    """
    # The read-out is pulled back once, `u_{i} = W'_{i+1,1}ᵀ u_{i+1}`, and every term is read by the covector of its own
    # layer.
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
        equality(y(k), step.right, "by Eq. 20 and the definitions, one layer", (read, s.equation_20, pulled)),
        equality(y(0), start + IndexedSum(share(j), j, 1, 0), "base: by the definitions, with empty sums", (read,)),
        induction_hypothesis(hypothesis.left, hypothesis.right),
        equality(
            y(k),
            start + IndexedSum(share(j), j, 1, k),
            "step: by the equation of one layer and the induction hypothesis",
            (hypothesis, step),
        ),
        *(
            equality(
                Transpose(u(k)) * s.C(j, k, t),
                Transpose(u(i)) * s.C(j, i, t),
                "by the definitions, a term is read the same in every layer that it is carried through, for j ≤ i",
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
