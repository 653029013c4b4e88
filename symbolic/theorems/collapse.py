"""The collapse: with every activation written as slope times pre-activation, the stack is one affine map."""

from sympy import Identity, MatrixExpr, ZeroMatrix

from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal
from symbolic.expressions.activation import Activation
from symbolic.expressions.diagonal import Diagonal
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step, equality, let
from symbolic.theorems.residual_stack import ResidualStack, i, j


def collapse(stack: ResidualStack | None = None) -> Derivation:
    """Derive `x'_i = W(x_0) x'_0 + b(x_0)` for every depth, by induction.

    With the slope held, `σ(z_i) = diag(s_i) z_i + t_i`, where `t_i = σ(0)`, every layer is affine, so the stack is.

    Args:
        stack: the symbols.

    Example:
        >>> collapse().verified
        True
    """
    s = stack or ResidualStack()

    def slope(k: object) -> MatrixExpr:
        return Diagonal(Parameter("s", (k,), s.neurons, 1))

    def at_zero(k: object) -> MatrixExpr:
        return Parameter("t", (k,), s.neurons, 1)

    def jacobian(k: object) -> Parameter:
        return Parameter("J", (k,), s.width, s.width)

    def whole(k: object) -> Parameter:
        return Parameter("Wbar", (k,), s.width, s.width)

    def rest(k: object) -> Parameter:
        return Parameter("bbar", (k,), s.width, 1)

    x, k = s.x, i + 1
    layer = Definition(
        x(k), s.W(k, 1) * x(i) + s.b(k, 3) + s.W(k, 3) * (slope(k) * (s.W(k, 2) * x(i) + s.b(k, 2)) + at_zero(k)), (i,)
    )
    activation = Activation(s.W(k, 2) * x(i) + s.b(k, 2))
    held = slope(k) * activation.argument + at_zero(k)
    replaced = s.general_term(k).xreplace({activation: held})
    rules = (
        Definition(jacobian(k), s.W(k, 1) + s.W(k, 3) * slope(k) * s.W(k, 2), (i,)),
        Definition(whole(0), Identity(s.width)),
        Definition(whole(k), jacobian(k) * whole(i), (i,)),
        Definition(rest(0), ZeroMatrix(s.width, 1)),
        Definition(rest(k), jacobian(k) * rest(i) + s.b(k, 3) + s.W(k, 3) * (slope(k) * s.b(k, 2) + at_zero(k)), (i,)),
    )
    hypothesis = Definition(x(i), whole(i) * x(0) + rest(i))
    terms = IndexedSum(s.C(j, i) * slope(j) * s.W(j, 2) * whole(j - 1), j, 1, i)
    split = Definition(whole(i), s.P(i) + terms)
    steps = (
        Step(x(k), layer.right, "Eq. 20 with σ(z) = diag(s) z + t", equal(replaced, layer.right), ":="),
        *(let(rule.left, rule.right) for rule in rules if rule.variables),
        equality(x(0), whole(0) * x(0) + rest(0), "base", rules),
        let(x(i), hypothesis.right, "hypothesis"),
        Step(
            x(k), whole(k) * x(0) + rest(k), "step", equal(x(k), whole(k) * x(0) + rest(k), (hypothesis, layer, *rules))
        ),
        equality(whole(0), s.P(0) + IndexedSum(terms.body, j, 1, 0), "base", (*rules, *s.recursions)),
        let(whole(i), split.right, "hypothesis: the linear path, and each term's share"),
        equality(
            whole(k),
            s.P(k) + IndexedSum(s.C(j, i + 1) * slope(j) * s.W(j, 2) * whole(j - 1), j, 1, i + 1),
            "step",
            (split, *rules, *s.recursions),
        ),
    )
    return Derivation(
        "The collapse to one affine map", steps, "The slopes s and offsets t are held at their values on this input."
    )
