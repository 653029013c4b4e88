"""Prove the closed form at every depth, by induction over the number of layers."""

from dataclasses import replace

from sympy import Tuple, ZeroMatrix

from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import normal_form
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.hypotheses import of_a_held_stack
from symbolic.proof.step import continued, equality, induction_hypothesis, let_each
from symbolic.theorems.residual_stack import ResidualStack, added, i

_DEFINED = ("P", "q", "B", "c", "C", "UAT")


def _not_closed(rules: tuple[Definition, ...], parameters: tuple[Definition, ...], s: ResidualStack) -> list[str]:
    """Return every definition that the stream flows into, though a parameter is what doesn't depend on it.

    The sum of terms alone is made of activations, and a bias inside one where a term of its own layer flows into it;
    these are activations of the input.
    """
    faults = []
    own = (rule for rule in parameters if not rule.is_relation and rule.left.letter in ("W'", "b'"))
    for rule in (*rules, *own):
        right = normal_form(rule.right, parameters).expression()
        streams = {part for part in right.atoms(Parameter) if not part.of_layer and part.letter == s.x(0).letter}
        activations = right.atoms(Activation)
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
    wrong = [str(rule.left) for rule in rules if rule.left.letter not in _DEFINED]
    if wrong:
        raise SymbolicError(f"{', '.join(wrong)}: a recursion defines P, q, B, c, C or UAT, and nothing of the network")
    single = [str(rule.left) for rule in rules if Tuple(*rule.left.indices).free_symbols - {*rule.variables}]
    if single:
        raise SymbolicError(f"{', '.join(single)}: a recursion holds for every layer: name its indices as variables")
    open_ones = _not_closed(rules, parameters, s)
    if open_ones:
        raise SymbolicError(
            f"{'; '.join(open_ones)}: that is no closed form, since a parameter may not depend on the stream: what does"
            " (a pattern, a scale, a gate) is held, as a parameter of its own"
        )
    k, known = i + 1, (*rules, *parameters)
    hypothesis = Definition(s.x(i), s.form(i))
    path = s.W(k, 1) * s.x(i) + s.b(k, 3)
    carried = s.P(k) * s.x(0) + s.q(k) + (s.W(k, 1) * s.UAT(i) if s.sizes else ZeroMatrix(s.width, 1))
    steps = [
        equality(s.x(0), s.form(0), "base: P_0 = I, q_0 = 0, no terms", known),
        induction_hypothesis(s.x(i), s.form(i)),
        equality(s.x(k), s.general_term(k), "the layer is a residual term, Eq. 20", (layer, *parameters)),
        equality(path, s.W(k, 1) * s.form(i) + s.b(k, 3), "induction hypothesis, Eq. 26", (hypothesis, *parameters)),
        continued(path, carried, "recursions of P and q, Eq. 26", (hypothesis, *known)),
    ]
    for t in s.terms:
        inside, argument = s.pre_activation(k, t), s.B(k, t) * s.x(0) + s.c(k, t)
        earlier = [s.coupling(k, t, r) * s.activated(s.pre_activation(k, r), k, r) for r in s.earlier(t)]
        rest = added(s.W(k, 2, t) * (s.q(i) + s.UAT(i)) + s.b(k, 2, t), earlier)
        put_in = s.W(k, 2, t) * s.P(i) * s.x(0) + rest
        activations = s.activated(inside, k, t), s.activated(argument, k, t)
        steps += [
            equality(inside, put_in, "induction hypothesis, Eq. 27", (hypothesis, *parameters)),
            equality(*activations, "recursions of B and c, Eq. 27", (hypothesis, *known)),
        ]
    if s.sizes:
        sum_of_terms = s.W(k, 1) * s.UAT(i) + s.born(k)
        steps.append(equality(s.UAT(k), sum_of_terms, "recursion of C, Eq. 32–34", known))
    steps.append(equality(s.x(k), s.form(k), "Eq. 33 at depth i + 1", (hypothesis, layer, *known)))
    remark = "So it holds at every depth: at 0, and at i + 1 whenever it holds at i."
    proof = Derivation(title, tuple(steps), remark, given=let_each(*rules), premises=of_a_held_stack(s.equation_20))
    return proof if proof.verified else replace(proof, remark="")
