"""Prove the closed form of several streams at every depth, by induction over the number of layers."""

from symbolic.equality.definition import Definition
from symbolic.expressions.matrix import MatrixSum
from symbolic.expressions.parameter import i
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import equality, induction_hypothesis, let_each
from symbolic.theorems.closed_form import check_recursions
from symbolic.theorems.stream_stack import StreamStack

STREAMS = "Every layer computes each stream from all streams of the layer before it"


def streams(stack: StreamStack | None = None, recursions: tuple[Definition, ...] | None = None) -> Derivation:
    """Prove `x'_{i,s} = Σ_r P_{i,s,r} x'_{0,r} + q_{i,s} + UAT^R_{i,s}` for every depth `i`, for all streams at once.

    Args:
        stack: the symbols; those of two streams and two coupled terms if absent.
        recursions: the recursions to prove; those of the stack if absent.

    Raises:
        SymbolicError: if a recursion defines something of the network itself, or holds for one layer only.

    Example:
        >>> print(streams().verdict)
        8 of 8 checks hold, by induction, with 30 definitions

    Source: the extension of Wang & Li, Eq. 33, to several streams.
    """
    s, k = stack or StreamStack(), i + 1
    rules = s.recursions if recursions is None else recursions
    check_recursions(rules, ("P", "q", "B", "c", "C", "h", "UAT"))
    hypotheses = tuple(Definition(s.x(i, r), s.form(i, r)) for r in s.streams)
    steps = [equality(s.x(0, r), s.form(0, r), "base: by the recursions, with no terms", rules) for r in s.streams]
    steps += [induction_hypothesis(each.left, each.right) for each in hypotheses]
    known = (*hypotheses, *s.layer)
    proved: list[Definition] = []
    for t in s.terms:
        inside = [rule for rule in rules if rule.left.letter in "Bch" and rule.left.lower[1] == t]
        words = "by the equations of the layer, the induction hypothesis and the recursions"
        steps.append(equality(s.a(k, t), s.h(k, t), words, (*proved, *known, *inside)))
        proved.append(Definition(s.a(k, t), s.h(k, t)))
    outside = [rule for rule in rules if rule.left.letter in ("C", "UAT")]
    for r in s.streams if s.neurons else ():
        carried = (s.U(k, r, u) * s.UAT(i, u) for u in s.streams)
        terms = MatrixSum(*carried, *(s.G(k, r, t) * s.h(k, t) for t in s.terms))
        steps.append(equality(s.UAT(k, r), terms, "by the recursions", outside))
        proved.append(Definition(s.UAT(k, r), terms))
    path = [rule for rule in rules if rule.left.letter in "Pq"]
    words = "put the last equations into those of the layer, and use the recursions"
    steps += [equality(s.x(k, r), s.form(k, r), f"step: {words}", (*proved, *known, *path)) for r in s.streams]
    return Derivation(
        "Several streams in one closed form",
        tuple(steps),
        given=let_each(*rules),
        premises=s.premises(STREAMS),
        words=s.words,
    )
