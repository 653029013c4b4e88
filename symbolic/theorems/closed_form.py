"""The closed form at every depth, by induction over the number of layers."""

from dataclasses import replace

from sympy import Tuple

from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal, normal_form
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step, equality, let
from symbolic.theorems.residual_stack import ResidualStack, i

_DEFINED = ("P", "q", "B", "c", "C", "UAT")


def _not_closed(rules: tuple[Definition, ...], parameters: tuple[Definition, ...], s: ResidualStack) -> list[str]:
    """Return every definition that the stream flows into, though a parameter is what doesn't depend on it.

    Only the sum of terms is made of activations, and these are of the input alone.
    """
    found = []
    for rule in (*rules, *(rule for rule in parameters if rule.left.letter in ("W'", "b'"))):
        right = normal_form(rule.right, parameters).expression()
        streams = {part for part in right.atoms(Parameter) if part.letter == s.x(0).letter}
        activations = right.atoms(Activation)
        if rule.left.letter == "UAT":
            streams -= {s.x(0)}
            activations = {outer for outer in activations if any(inner.has(Activation) for inner in outer.args)}
        if streams or activations:
            found.append(f"{rule.left} contains {', '.join(sorted(map(str, streams or activations)))}")
    return found


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
        layer: what a layer computes, `x'_{i+1}` from `x'_i`; Eq. 20 if absent.
        parameters: what `W'_{i,k}` and `b'_{i,k}` stand for, if the layer is a block of another kind.
        title: title of the derivation.

    Raises:
        SymbolicError: if a recursion defines something of the network itself, or runs in a circle; if the stream flows
            into a parameter or a recursion, so that what they give is no closed form.

    Example:
        >>> print(prove().verdict)
        9 of 9 steps verified

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
    known = (*rules, *parameters)
    hypothesis = Definition(s.x(i), s.form(i))
    path = s.W(i + 1, 1) * s.x(i) + s.b(i + 1, 3)
    carried = s.P(i + 1) * s.x(0) + s.q(i + 1) + s.W(i + 1, 1) * s.UAT(i)
    pre_activation = s.W(i + 1, 2) * s.x(i) + s.b(i + 1, 2)
    argument = s.B(i + 1) * s.x(0) + s.c(i + 1)
    steps = (
        equality(s.x(0), s.form(0), "base: P_0 = I, q_0 = 0, no terms", known),
        let(s.x(i), s.form(i), "hypothesis"),
        equality(s.x(i + 1), s.general_term(i + 1), "the layer is a residual term, Eq. 20", (layer, *parameters)),
        equality(path, s.W(i + 1, 1) * s.form(i) + s.b(i + 1, 3), "hypothesis, Eq. 26", (hypothesis, *parameters)),
        equality(path, carried, "recursions of P and q, Eq. 26", (hypothesis, *known)),
        equality(
            pre_activation,
            s.W(i + 1, 2) * s.P(i) * s.x(0) + (s.W(i + 1, 2) * (s.q(i) + s.UAT(i)) + s.b(i + 1, 2)),
            "hypothesis, Eq. 27",
            (hypothesis, *parameters),
        ),
        equality(
            Activation(pre_activation), Activation(argument), "recursions of B and c, Eq. 27", (hypothesis, *known)
        ),
        equality(
            s.UAT(i + 1),
            s.W(i + 1, 1) * s.UAT(i) + s.W(i + 1, 3) * Activation(argument),
            "recursion of C, Eq. 32–34",
            known,
        ),
        Step(
            s.x(i + 1),
            s.form(i + 1),
            "Eq. 33 at depth i + 1",
            equal(s.x(i + 1), s.form(i + 1), (hypothesis, layer, *known)),
        ),
    )
    proof = Derivation(title, steps, "So it holds at every depth: at 0, and at i + 1 whenever it holds at i.")
    return proof if proof.verified else replace(proof, remark="")
