"""Prove the closed form at every depth, by induction over the number of layers."""

from collections.abc import Iterable, Sequence

from sympy import Tuple, ZeroMatrix

from symbolic.equality.collect import collect
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import normal_form
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.hypotheses import equation_20, of_a_held_stack
from symbolic.proof.step import Step, continued, equality, equations, induction_hypothesis, let, let_each
from symbolic.theorems.residual_stack import ResidualStack, added, check_depth, i, j


def two_layers(stack: ResidualStack | None = None) -> Derivation:
    """Derive the forms of one and of two layers as the papers do it by hand, every line checked."""
    s = stack or ResidualStack()
    x0, eq20 = s.x(0), [s.equation_20]
    first = s.W(1, 1) * x0 + s.b(1, 3)
    s1 = s.activated(s.W(1, 2) * x0 + s.b(1, 2), 1)
    x1 = first + s.W(1, 3) * s1
    substituted = s.general_term(2, x1)
    multiplied = (
        s.W(2, 1) * first
        + s.b(2, 3)
        + s.W(2, 1) * s.W(1, 3) * s1
        + s.W(2, 3) * s.activated(s.W(2, 2) * first + s.b(2, 2) + s.W(2, 2) * s.W(1, 3) * s1, 2)
    )
    first_layer = (
        (s.P(1), s.W(1, 1)),
        (s.q(1), s.b(1, 3)),
        (s.B(1), s.W(1, 2)),
        (s.c(1), s.b(1, 2)),
        (s.C(1, 1), s.W(1, 3)),
    )
    second_layer = (
        (s.P(2), s.W(2, 1) * s.W(1, 1)),
        (s.q(2), s.W(2, 1) * s.b(1, 3) + s.b(2, 3)),
        (s.B(2), s.W(2, 2) * s.W(1, 1)),
        (s.c(2), s.W(2, 2) * s.b(1, 3) + s.b(2, 2) + s.W(2, 2) * s.W(1, 3) * s1),
        (s.C(1, 2), s.W(2, 1) * s.W(1, 3)),
        (s.C(2, 2), s.W(2, 3)),
    )
    terms = [s.C(layer, 2) * s.activation(layer) for layer in (1, 2)]
    sums = ((s.UAT(1), s.C(1, 1) * s.activation(1)), (s.UAT(2), terms[0] + terms[1]))
    rules = [*eq20, *(Definition(name, value) for name, value in (*first_layer, *second_layer, *sums))]

    steps = (
        equality(s.x(1), x1, "Eq. 21", eq20),
        equality(s.x(2), s.general_term(2), "Eq. 22, first line", eq20),
        continued(s.general_term(2), substituted, "Eq. 21 substituted", eq20),
        continued(substituted, multiplied, "multiplied out"),
        *(let(name, value, "let, of layer 1") for name, value in first_layer),
        *(let(name, value, "let, of layer 2") for name, value in second_layer),
        equality(s.x(2), s.P(2) * x0 + s.q(2) + terms[0] + terms[1], "Eq. 23", rules),
        let(*sums[0], "let, the sum of the terms of one layer"),
        equality(s.x(1), s.form(1), "Eq. 24", rules),
        let(*sums[1], "let, of two layers"),
        equality(s.x(2), s.form(2), "Eq. 25", rules),
    )
    return Derivation("One layer and two layers", steps, premises=of_a_held_stack(s.equation_20))


def recursions(stack: ResidualStack | None = None, depth: int = 3) -> Derivation:
    """Derive the recursions: the form of layer i put in Eq. 20 and sorted by `x'_0`, for a symbolic i."""
    s, k, depth = stack or ResidualStack(), i + 1, check_depth(depth)
    next_layer = s.general_term(k, s.form(i))
    known, rules = (Definition(s.x(i), s.form(i)), s.equation_20), s.recursions
    path = collect(s.W(k, 1) * s.form(i) + s.b(k, 3), s.x(0))
    carried = s.W(k, 1) * s.UAT(i) if s.sizes else ZeroMatrix(s.width, 1)
    values = {s.P(k): (path.path, "updated W'_{i+1,1}"), s.q(k): (path.offset - carried, "updated b'_{i+1,3}")}
    for t in s.terms:
        inside = collect(s.W(k, 2, t) * s.form(i) + s.b(k, 2, t), s.x(0))
        bias = added(inside.offset, (s.coupling(k, t, r) * s.activation(k, r) for r in s.earlier(t)))
        values[s.B(k, t)] = inside.path, "updated W'_{i+1,2}"
        values[s.c(k, t)] = bias, "updated b'_{i+1,2}, with all earlier terms"
    sorted_form = path.path * s.x(0) + path.offset
    for t in s.terms:
        argument = values[s.B(k, t)][0] * s.x(0) + values[s.c(k, t)][0]
        sorted_form = sorted_form + s.W(k, 3, t) * s.activated(argument, k, t)
    inside_rules = [rule for rule in rules if rule.left in values and rule.left.letter in "Bc"]
    whole = normal_form(s.x(depth), [s.equation_20]) == normal_form(s.form(depth), rules)
    steps = [
        equality(s.x(0), s.form(0), "base: by the recursions, with no terms", rules),
        induction_hypothesis(s.x(i), s.form(i)),
        equality(s.x(k), next_layer, "Eq. 20, with the form of layer i in it", known),
        continued(next_layer, sorted_form, "sorted by x'_0", inside_rules),
        *(let(rule.left, rule.right, values[rule.left][1]) for rule in rules if rule.left in values),
    ]
    for t in s.terms:
        steps += [
            let(s.C(i, i, t), s.W(i, 3, t), "the matrix of a new term, for 1 ≤ i"),
            let(s.C(j, k, t), s.W(k, 1) * s.C(j, i, t), "W'_{j,3} carried one layer on, for j ≤ i"),
        ]
    if s.sizes:
        earlier = IndexedSum(s.carried(j, k), j, 1, i)
        steps += [
            equality(carried, earlier, "so the earlier terms, in layer i + 1", rules),
            equality(s.UAT(k), carried + s.born(k), "and layer i + 1 adds one", rules),
        ]
    steps.append(equality(s.x(k), s.form(k), "so layer i + 1 has that form: by the recursions", (*known, *rules)))
    using = equations((s.equation_20, *rules))
    steps.append(Step(s.x(depth), s.form(depth), f"against Eq. 20 substituted {depth} times", whole, using=using))
    given = let_each(*(rule for rule in rules if not rule.variables or rule.left.letter == "UAT"))
    return Derivation(
        "The recursions, for every depth", tuple(steps), given=given, premises=of_a_held_stack(s.equation_20)
    )


_DEFINED = ("P", "q", "B", "c", "C", "UAT")


def check_recursions(rules: Iterable[Definition], defined: Sequence[str]) -> None:
    """Raise if a recursion defines another letter than the form's own, or holds for one layer only."""
    wrong = [str(rule.left) for rule in rules if rule.left.letter not in defined]
    if wrong:
        letters = f"{', '.join(defined[:-1])} or {defined[-1]}"
        raise SymbolicError(f"{', '.join(wrong)}: a recursion defines {letters}, and nothing of the network")
    single = [str(rule.left) for rule in rules if Tuple(*rule.left.indices).free_symbols - {*rule.variables}]
    if single:
        raise SymbolicError(f"{', '.join(single)}: a recursion holds for every layer: name its indices as variables")


def _not_closed(rules: tuple[Definition, ...], parameters: tuple[Definition, ...], s: ResidualStack) -> list[str]:
    """Return every definition that the stream flows into, though a parameter is what doesn't depend on it."""
    faults = []
    own = (rule for rule in parameters if not rule.is_relation and rule.left.letter in ("W'", "b'"))
    for rule in (*rules, *own):
        right = normal_form(rule.right, parameters).expression()
        streams = {part for part in right.atoms(Parameter) if not part.of_layer and part.letter == s.x(0).letter}
        activations = right.atoms(Activation)
        # The sum of terms alone is made of activations, and a bias where a term of its own layer flows into it.
        if rule.left.letter == "UAT" or (rule.left.letter == "c" and s.couplings):
            streams -= {s.x(0)}
            activations = {outer for outer in activations if any(inner.has(Activation) for inner in outer.args)}
        if streams or activations:
            faults.append(f"{rule.left} contains {', '.join(sorted(map(str, streams or activations)))}")
    return faults


def prove(
    stack: ResidualStack | None = None,
    recursions: tuple[Definition, ...] | None = None,
    layer: Definition | None = None,
    parameters: tuple[Definition, ...] = (),
    title: str = "The closed form at every depth",
) -> Derivation:
    """Prove `x'_i = P_i x'_0 + q_i + UAT^R_i` for every depth `i`, by induction.

    Every step is decided by the normal form with a symbolic `i`; a wrong recursion leaves steps that aren't verified.

    Args:
        stack: the symbols.
        recursions: the recursions to prove; the derived ones if absent.
        layer: the function of a layer, `x'_{i+1}` from `x'_i`; Eq. 20 if absent.
        parameters: the definitions of `W'_{i,k}` and `b'_{i,k}`, if the layer is another block, and relations.
        title: title of the derivation.

    Raises:
        SymbolicError: if a recursion defines something of the network itself, or runs in a circle; if the stream flows
            into a parameter or a recursion, so that what they give is no closed form.

    Example:
        >>> print(prove().verdict)
        8 of 8 checks hold, by induction, with 9 definitions

    Source: Wang & Li, Eq. 26, 27 and 31–34.
    """
    s = stack or ResidualStack()
    rules = s.recursions if recursions is None else recursions
    layer = s.equation_20 if layer is None else layer
    check_recursions(rules, _DEFINED)
    open_ones = _not_closed(rules, parameters, s)
    if open_ones:
        raise SymbolicError(
            f"{'; '.join(open_ones)}: that is no closed form, since a parameter may not depend on the stream: what does"
            " (a pattern, a scale, a gate) is held, as a parameter of its own"
        )
    k, known, residual = i + 1, (*rules, *parameters), f"the layer is a residual term, {equation_20(s.equation_20)}"
    hypothesis = Definition(s.x(i), s.form(i))
    path = s.W(k, 1) * s.x(i) + s.b(k, 3)
    carried = s.P(k) * s.x(0) + s.q(k) + (s.W(k, 1) * s.UAT(i) if s.sizes else ZeroMatrix(s.width, 1))
    steps = [
        equality(s.x(0), s.form(0), "base: by the recursions, with no terms", rules),
        induction_hypothesis(s.x(i), s.form(i)),
        equality(s.x(k), s.general_term(k), residual, (layer, *parameters)),
        equality(path, s.W(k, 1) * s.form(i) + s.b(k, 3), "by the induction hypothesis", (hypothesis,)),
        continued(path, carried, "by the recursions", (hypothesis, *rules)),
    ]
    for t in s.terms:
        inside, argument = s.pre_activation(k, t), s.B(k, t) * s.x(0) + s.c(k, t)
        earlier = [s.coupling(k, t, r) * s.activated(s.pre_activation(k, r), k, r) for r in s.earlier(t)]
        rest = added(s.W(k, 2, t) * (s.q(i) + s.UAT(i)) + s.b(k, 2, t), earlier)
        put_in = s.W(k, 2, t) * s.P(i) * s.x(0) + rest
        steps += [
            equality(inside, put_in, "by the induction hypothesis", (hypothesis,)),
            continued(put_in, argument, "by the recursions", (hypothesis, *rules)),
        ]
    if s.sizes:
        sum_of_terms = s.W(k, 1) * s.UAT(i) + s.born(k)
        steps.append(equality(s.UAT(k), sum_of_terms, "by the recursions", rules))
    steps.append(
        equality(
            s.x(k),
            s.form(k),
            "Eq. 33 at depth i + 1: put these into the layer",
            (hypothesis, layer, *known),
        )
    )
    return Derivation(title, tuple(steps), given=let_each(*rules), premises=of_a_held_stack(s.equation_20))
