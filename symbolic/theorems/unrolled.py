"""Derive the unrolled form at a concrete depth, with every parameter as a product of the layers' own."""

from collections.abc import Iterator
from typing import Any

from sympy import Expr, Integer, MatrixExpr, Symbol, ZeroMatrix

from symbolic.equality.definition import Definition
from symbolic.equality.normaliser import Normaliser
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.ordered_product import OrderedProduct, written_out
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.hypotheses import equation_20, of_a_held_stack
from symbolic.proof.step import Step, equality, equations, let_each
from symbolic.theorems.residual_stack import ResidualStack, added, check_depth, i, j

_EACH = 3  # layers up to which every layer has lines of its own
_IN_FULL = 450  # characters up to which the form is also written out without names
_m, _k = (Symbol(name, integer=True, nonnegative=True) for name in "mk")

Line = tuple[Parameter, MatrixExpr, str]
Place = dict[Expr, Integer]


def _products(s: ResidualStack) -> Iterator[Line]:
    """Yield every parameter of layer `j` as products of the layers' own; of its terms those of layer `m ≤ j`."""

    def path(last: Any, first: Any) -> MatrixExpr:
        return OrderedProduct(s.W(_k, 1), _k, last, first)

    yield s.P(j), path(j, 1), "the linear path"
    yield s.q(j), IndexedSum(path(j, _m + 1) * s.b(_m, 3), _m, 1, j), "the biases, carried along it"
    for t in s.terms:
        earlier_layers = s.W(j, 2, t) * (s.q(j - 1) + s.UAT(j - 1))
        before = [s.coupling(j, t, r) * s.activation(j, r) for r in s.earlier(t)]
        yield s.B(j, t), s.W(j, 2, t) * path(j - 1, 1), "the input, carried into an activation"
        yield s.c(j, t), added(s.b(j, 2, t) + earlier_layers, before), "its bias, with all earlier terms"
        yield s.C(_m, j, t), path(j, _m + 1) * s.W(_m, 3, t), "an activation, carried on"
    if s.sizes:
        yield s.UAT(j), IndexedSum(s.carried(_m, j), _m, 1, j), "all terms"


def _places(line: Line, layer: int) -> list[Place]:
    """Return the numbers that a line of `_products` stands for at one layer."""
    here = {j: Integer(layer)}
    return [{**here, _m: Integer(m)} for m in range(1, layer + 1)] if line[0].has(_m) else [here]


def unroll(
    depth: int,
    stack: ResidualStack | None = None,
    layer: Definition | None = None,
    parameters: tuple[Definition, ...] = (),
    title: str = "The unrolled form",
) -> Derivation:
    """Derive the unrolled form at a concrete depth, `x'_L = P_L x'_0 + q_L + Σ_j C_j^{(L)} σ(B_j x'_0 + c_j)`.

    Example:
        >>> print(unroll(32).steps[2].left, "=", unroll(32).steps[2].right)
        Bⱼ = W′ⱼ,₂ W′ⱼ₋₁,₁ ⋯ W′₁,₁
    """
    # Every parameter of every layer is written as products of the layers' own and compared with the recursions; the
    # form at every depth up to this one is compared with Eq. 20, one layer substituted in the next. A block of another
    # kind is first shown to be Eq. 20, for every layer.
    depth, s = check_depth(depth), stack or ResidualStack()
    network, known = Normaliser([s.equation_20]), Normaliser(s.recursions)

    def holds(line: Line, place: Place) -> bool:
        left, right, _ = line
        return known.form(left.xreplace(place)) == known.form(written_out(right, place))

    def equals_network(k: int) -> bool:
        return network.form(s.x(k)) == known.form(s.form(k))

    rules, all_rules = equations(s.recursions), equations((s.equation_20, *s.recursions))
    steps = []
    if layer is not None:
        name = f"every layer, {equation_20(s.equation_20)}"
        steps.append(equality(s.x(i + 1), s.general_term(i + 1), name, (layer, *parameters)))
    nothing = {parameter: ZeroMatrix(s.width, 1) for parameter in (s.q(0), s.UAT(0))}
    if depth <= _EACH:
        for k in range(1, depth + 1):
            for line in _products(s):
                left, right, rule = line
                steps += [
                    Step(left.xreplace(p), written_out(right, p).xreplace(nothing), rule, holds(line, p), using=rules)
                    for p in _places(line, k)
                ]
            words = "equals the network, layer substituted in layer, by the recursions"
            steps.append(Step(s.x(k), s.form(k), words, equals_network(k), using=all_rules))
        if len(str(whole := network.form(s.x(depth)).expression())) <= _IN_FULL:
            steps.append(equality(s.x(depth), whole, "in full", (s.equation_20,)))
    else:
        layers = range(1, depth + 1)
        for line in _products(s):
            holds_everywhere = all(holds(line, p) for k in layers for p in _places(line, k))
            within = "1 ≤ m ≤ j" if line[0].has(_m) else f"1 ≤ j ≤ {depth}"
            steps.append(Step(*line[:2], f"{line[2]}, for {within}", holds_everywhere, using=rules))
        whole = s.P(depth) * s.x(0) + s.q(depth)
        whole = whole + IndexedSum(s.carried(j, depth), j, 1, depth) if s.sizes else whole
        equal = all(map(equals_network, layers)) and known.form(whole) == known.form(s.form(depth))
        steps.append(
            Step(
                s.x(depth),
                whole,
                "equals the network, layer substituted in layer, by the recursions",
                equal,
                using=all_rules,
            )
        )
    terms = depth * len(s.sizes)
    remark = f"{depth} layer{'s are' if depth > 1 else ' is'} one affine map of the input" + (
        f" plus {terms} term{'s' if terms > 1 else ''}." if terms else "."
    )
    return Derivation(
        f"{title} at depth {depth}",
        tuple(steps),
        remark,
        given=let_each(*s.recursions),
        premises=of_a_held_stack(s.equation_20),
    )
