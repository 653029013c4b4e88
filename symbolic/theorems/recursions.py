"""One layer, two layers, and the recursions of the parameters at every depth."""

from symbolic.equality.collect import collect
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal, normal_form
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step, equality, let
from symbolic.theorems.residual_stack import ResidualStack, check_depth, i, j


def two_layers(stack: ResidualStack | None = None) -> Derivation:
    """Derive the forms of one and of two layers as the papers do it by hand, every line checked.

    Args:
        stack: the symbols.

    Source: Wang & Li, Eq. 21–25.
    """
    s = stack or ResidualStack()
    x0, eq20 = s.x(0), [s.equation_20]
    first = s.W(1, 1) * x0 + s.b(1, 3)
    s1 = Activation(s.W(1, 2) * x0 + s.b(1, 2))
    x1 = first + s.W(1, 3) * s1
    rules = [*eq20, *s.recursions]
    steps = (
        equality(s.x(1), x1, "Eq. 21", eq20),
        equality(s.x(2), s.general_term(2), "Eq. 22, first line", eq20),
        equality(s.x(2), s.general_term(2, x1), "Eq. 21 substituted", eq20),
        equality(
            s.x(2),
            s.W(2, 1) * first
            + s.b(2, 3)
            + s.W(2, 1) * s.W(1, 3) * s1
            + s.W(2, 3) * Activation(s.W(2, 2) * first + s.b(2, 2) + s.W(2, 2) * s.W(1, 3) * s1),
            "multiplied out",
            eq20,
        ),
        *(
            equality(name, value, "let", s.recursions)
            for name, value in (
                (s.P(2), s.W(2, 1) * s.W(1, 1)),
                (s.q(2), s.W(2, 1) * s.b(1, 3) + s.b(2, 3)),
                (s.C(1, 2), s.W(2, 1) * s.W(1, 3)),
                (s.B(2), s.W(2, 2) * s.W(1, 1)),
                (s.c(2), s.W(2, 2) * s.b(1, 3) + s.b(2, 2) + s.W(2, 2) * s.W(1, 3) * s1),
            )
        ),
        equality(
            s.x(2),
            s.P(2) * x0 + s.q(2) + s.C(1, 2) * s.activation(1) + s.C(2, 2) * s.activation(2),
            "Eq. 23",
            rules,
        ),
        equality(s.x(1), s.form(1), "Eq. 24", rules),
        equality(s.x(2), s.form(2), "Eq. 25", rules),
    )
    return Derivation("One layer and two layers", steps)


def recursions(stack: ResidualStack | None = None, depth: int = 3) -> Derivation:
    """Derive the recursions: the form of layer i put in Eq. 20 and sorted by `x'_0`, for a symbolic i.

    Args:
        stack: the symbols.
        depth: where all recursions together are also compared with the substituted network.

    Raises:
        SymbolicError: if the depth isn't a positive integer.

    Source: Wang & Li, Eq. 12 and 34, with two indices.
    """
    s, depth = stack or ResidualStack(), check_depth(depth)
    next_layer = s.general_term(i + 1, s.form(i))
    found = collect(next_layer, s.x(0))
    (term,) = found.terms
    derived = {
        s.P(i + 1): (found.path, "updated W'_{i+1,1}"),
        s.q(i + 1): (found.offset - s.W(i + 1, 1) * s.UAT(i), "updated b'_{i+1,3}"),
        s.B(i + 1): (term.inner, "updated W'_{i+1,2}"),
        s.c(i + 1): (term.bias, "updated b'_{i+1,2}, with all earlier terms"),
    }
    sorted_form = found.path * s.x(0) + found.offset + term.outer * Activation(term.inner * s.x(0) + term.bias)
    known = (Definition(s.x(i), s.form(i)), s.equation_20)
    rules = s.recursions
    born = s.W(i + 1, 3) * s.activation(i + 1)
    carried = IndexedSum(s.C(j, i + 1) * s.activation(j), j, 1, i)
    whole = normal_form(s.x(depth), [s.equation_20]) == normal_form(s.form(depth), rules)
    steps = (
        Step(s.x(i + 1), next_layer, "Eq. 20, with the form of layer i in it", equal(s.x(i + 1), next_layer, known)),
        Step(None, sorted_form, "sorted by x'_0", equal(next_layer, sorted_form)),
        *(
            Step(rule.left, rule.right, derived[rule.left][1], equal(rule.right, derived[rule.left][0]))
            for rule in rules
            if rule.left in derived
        ),
        let(s.C(i, i), s.W(i, 3), "W'_{i,3} as it is born"),
        let(s.C(j, i + 1), s.W(i + 1, 1) * s.C(j, i), "W'_{j,3} carried one layer on, for j ≤ i"),
        equality(s.W(i + 1, 1) * s.UAT(i), carried, "so the earlier terms are carried", rules),
        equality(s.UAT(i + 1), s.W(i + 1, 1) * s.UAT(i) + born, "and one is born", rules),
        Step(s.x(depth), s.form(depth), f"against Eq. 20 substituted {depth} times", whole),
    )
    return Derivation("The recursions, for every depth", steps)
