"""Decide the claims about universal approximation and LoRA: Eq. 1, 2, 4 and 17–19."""

from functools import cache, partial

from sympy import MatrixExpr, Symbol, ZeroMatrix
from sympy.core.symbol import Str

from symbolic.audit import generality
from symbolic.audit.checks import at_depths, both, derived, expect, independent, lines_agree, rewritten, row_agrees
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.formula import read
from symbolic.audit.letters import applied, table
from symbolic.audit.magnitude import Magnitude
from symbolic.audit.notation import APPROXIMATION, CUBE, FUNCTION, INPUT, THEORY, THRESHOLD, S
from symbolic.audit.pruning import is_the_sum
from symbolic.audit.residual import K
from symbolic.audit.statement import Statement
from symbolic.audit.updates import updated
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import normal_form
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter
from symbolic.theorems.closed_form import prove
from symbolic.theorems.lemma import lemma_1
from symbolic.theorems.lora import AdaptedStack, delta, lora
from symbolic.theorems.residual_stack import i, j


def _sum_of_the_theorem(claim: Claim) -> Outcome:
    name, total = claim.row.equated
    expect(name == APPROXIMATION, "G(x)")
    good = is_the_sum(total)
    return Outcome(good or None, "well formed, and the sum of Lemma 1" if good else "another sum than that of Lemma 1")


def cited(claim: Claim) -> Outcome:
    """Accept a claim as a theorem of other authors, which isn't proved here.

    Args:
        claim: the claim, `|G(x) − f(x)| < ε`.
    """
    bound, *rest = claim.says
    expect(bound == Statement((Magnitude(APPROXIMATION - FUNCTION), THRESHOLD), ("<",)), "|G(x) − f(x)| < ε")
    expect(all(s == Statement((INPUT, CUBE), (r"\in",)) for s in rest), "for x in the cube I_n")
    return Outcome(True, "cited, not proved here (Cybenko 1989, Theorem 2)")


_INPUT = Symbol("x_i")

_DYNAMIC = table(
    {"y_i": Symbol("y_i"), "x_i": _INPUT, "G_i": Symbol("G_i")},
    functions={letter: applied(letter) for letter in "GWb"},
)


def _parameters_of_the_input(claim: Claim) -> Outcome:
    """Decide that Eq. 4 makes the parameters inside the activation of Eq. 1 functions of the input."""
    (total,) = lemma_1().steps[0].left.atoms(IndexedSum)
    inside = {p.letter for p in next(iter(total.atoms(Activation))).atoms(Parameter)} - {INPUT.letter}
    output, value = claim.row.equated
    name, argument, *dependent = value.args
    good = name == Str("G") and argument == _INPUT and output == Symbol("y_i")
    good = good and {(str(p.args[0]), *p.args[1:]) for p in dependent} == {(letter, _INPUT) for letter in inside}
    return Outcome(good or None, "the parameters inside the activation of Eq. 1, each a function of the input")


def _lora_is_linear(claim: Claim) -> Outcome:
    name, value = claim.row.equated
    expect(name == Parameter("h", (), _D, 1), "h")
    return identity((_WEIGHT + delta(_WEIGHT)) * _VECTOR, value)


_D = Symbol("d", integer=True, positive=True)

_WEIGHT, _VECTOR = Parameter("W", (), _D, _D), Parameter("x", (), _D, 1)

_LORA = table({"h": Parameter("h", (), _D, 1), "W_0": _WEIGHT, "ΔW": delta(_WEIGHT), "x": _VECTOR})


def _mended(claim: Claim, misprints: tuple[tuple[str, str], ...]) -> MatrixExpr:
    """Return the right side of the printed Eq. 18 with some of its misprints mended."""
    text = claim.printed
    for misprint in misprints:
        text = text.replace(*misprint)
    unprimed = tuple(name for name in claim.unprimed if _INDEX not in misprints or name[0] != "Δ")
    left, right = read(text, THEORY, unprimed)[0].equated
    expect(left == S.x(K), "x_{i+1}")
    return right


def _eq_18(claim: Claim, misprints: tuple[tuple[str, str], ...]) -> Outcome:
    """Compare Eq. 18, its plain parameters read as updated, with the adapted network."""
    form, adapted = _mended(claim, misprints), AdaptedStack()

    def at(depth: int) -> Outcome:
        meant = rewritten(form, updated(depth)).xreplace({i: depth - 1})
        return identity(adapted.x(depth), meant, (adapted.equation_20, *_only_mlp(depth), *S.recursions))

    return at_depths(at, (1, 2))


def _only_mlp(depth: int) -> tuple[Definition, ...]:
    return tuple(Definition(delta(S.W(k, 1)), ZeroMatrix(S.width, S.width)) for k in range(1, depth + 1))


def _lora_in_mlps(claim: Claim) -> Outcome:
    """Prove the induction step of the corrected form at a symbolic layer, for adapters in the MLPs of all layers.

    `X + ΔX` is what the recursions make of `W'_{k,2} + ΔW'_{k,2}` and `W'_{k,3} + ΔW'_{k,3}`; `P` and `q` stay. The
    printed form says the same, its two misprints mended and its symbols updated.
    """
    s, k = S, i + 1
    left, right = claim.row.equated

    def new(p: Parameter) -> Parameter:
        rows, columns = p.shape
        return Parameter("~" + p.letter, p.lower, rows, columns, p.upper)

    activation = Activation(new(s.B(j)) * s.x(0) + new(s.c(j)))
    uat = IndexedSum(new(s.C(j, i)) * activation, j, 1, i)
    rules = (
        Definition(new(s.C(i, i)), s.W(i, 3) + delta(s.W(i, 3)), (i,)),
        Definition(new(s.C(j, k)), s.W(k, 1) * new(s.C(j, i)), (i, j), ((j, i),)),
        Definition(new(s.B(k)), (s.W(k, 2) + delta(s.W(k, 2))) * s.P(i), (i,)),
        Definition(new(s.c(k)), s.b(k, 2) + (s.W(k, 2) + delta(s.W(k, 2))) * (s.q(i) + uat), (i,)),
    )
    shared = tuple(rule for rule in s.recursions if rule.left.letter in "Pq")
    changes = tuple(Definition(delta(p), new(p) - p, p.indices) for p in (s.B(j), s.c(j), s.C(j, i)))
    hypothesis = Definition(s.x(i), s.P(i) * s.x(0) + s.q(i) + uat)
    plain = Definition(delta(s.W(k, 1)), ZeroMatrix(s.width, s.width), (i,))
    step = identity(left, right, (hypothesis, AdaptedStack().equation_20, plain, *changes, *rules, *shared))

    def moved(p: Parameter) -> MatrixExpr:
        """Return the expression of a printed symbol: `b'_{j,2}` is the updated one, and contains the adapters."""
        if p.letter == "ΔW'":
            return delta(updated(k)(Parameter("W'", p.lower, *p.shape)))
        meant = updated(k)(p)
        return meant + delta(meant) if meant.letter == "c" else meant

    printed = identity(rewritten(_mended(claim, (_PLUS, _INDEX)), moved), right)
    return both(step, printed, _theorem_with_adapters())


@cache
def lora_in_all_layers() -> Outcome:
    """Decide LoRA in all three matrices of every layer."""
    return derived(lora(depth=4), "recursions with W' + ΔW' against the adapted network at depth 4")


@cache
def _theorem_with_adapters() -> Outcome:
    return derived(prove(AdaptedStack()), "the closed form at every depth, with W'_{j,k} + ΔW'_{j,k} for W'_{j,k}")


def _layer_by_layer(claim: Claim) -> Outcome:
    """Compare the bias inside layer 2's activation with and without an adapter in layer 1 alone."""
    only_first = (Definition(delta(S.W(2, 2)), ZeroMatrix(S.neurons, S.width)), *AdaptedStack().recursions)
    moved = normal_form(S.c(2), only_first).expression()
    outcome = identity(moved, normal_form(S.c(2), S.recursions).expression())
    return Outcome(
        outcome.holds, f"with an adapter in layer 1 alone, c_2, the bias inside layer 2's activation: {outcome.how}"
    )


def _change_of_the_bias(claim: Claim) -> Outcome:
    """Decide `Δc_{i+1}`, the bias with `X + ΔX` for every `X` minus the bias."""
    rule = next(rule for rule in S.recursions if rule.left == S.c(K))
    adapted = rewritten(rule.right, lambda p: p if p.letter == "b'" else p + delta(p))
    left, right = claim.row.equated
    return both(identity(left, right, (Definition(delta(S.c(K)), adapted - rule.right),)), lora_in_all_layers())


def _lemma(claim: Claim) -> Outcome:
    name, *lines = claim.row.equated
    expect(name == APPROXIMATION, "G(x)")
    return both(
        lines_agree(Statement((lemma_1().steps[0].left, *lines), ("=",) * len(lines))), derived(lemma_1(), "Lemma 1")
    )


_PLUS, _INDEX = (r"+\sigma", r"\sigma"), (r"\Delta \mathbf{W}_{j+1,", r"\Delta \mathbf{W}'_{j,")

CHECKS = {
    "1": Checks(_sum_of_the_theorem),
    "2": Checks(cited),
    "4": Checks(_parameters_of_the_input, notation=_DYNAMIC),
    **generality.CHECKS,
    "17": Checks(_lora_is_linear, notation=_LORA),
    "18": Checks(
        row_agrees(),
        (partial(_eq_18, misprints=(_PLUS,)), partial(_eq_18, misprints=(_PLUS, _INDEX))),
        _lora_in_mlps,
    ),
    "LoRA layer by layer": Checks(_layer_by_layer, (independent(_theorem_with_adapters),), _change_of_the_bias),
    "19": Checks(_lemma),
}
