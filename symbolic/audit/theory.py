"""Decide the claims about universal approximation and LoRA: Eq. 1, 2, 4 and 17–19."""

from functools import cache, partial

from sympy import Abs, Expr, Integer, MatrixExpr, Max, Rational, Symbol, ZeroMatrix
from sympy.core.symbol import Str

from symbolic.audit.checks import at_depths, both, derived, expect, independent, lines_agree, row_agrees
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.formula import read
from symbolic.audit.letters import Statement, applied, table
from symbolic.audit.magnitude import Magnitude, as_number, never_negative
from symbolic.audit.notation import APPROXIMATION, CUBE, FUNCTION, INPUT, THEORY, THRESHOLD, S
from symbolic.audit.pruning import is_the_sum
from symbolic.audit.residual import K
from symbolic.audit.updates import updated
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import normal_form
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter, parameters_replaced
from symbolic.theorems.closed_form import prove
from symbolic.theorems.lora import AdaptedStack, delta, lora
from symbolic.theorems.residual_stack import i, j
from symbolic.theorems.uat_sums import lemma_1

_T, _P, _A, _B = (Parameter(letter, (), 1, 1) for letter in "tpab")

_REAL = {parameter: Symbol(parameter.letter, real=True) for parameter in (_T, _P, _A, _B)}

_NUMBERS = table({parameter.letter: parameter for parameter in _REAL}, functions={"G": applied("G")})

_DISTANCE = ((1, (1, -1), 0), (1, (-1, 1), 0))  # α_j, W_j and b_j of Eq. 1 with two terms


def _sum(terms: tuple, *x: Expr) -> Expr:
    """Return Eq. 1 at an input, with `σ` the ReLU."""
    return sum((a * Max(0, sum(w * v for w, v in zip(row, x, strict=True)) + b) for a, row, b in terms), Integer(0))


def _number(expression: MatrixExpr) -> Expr:
    """Return an expression of numbers, with `σ` the ReLU as `(z + |z|) / 2`."""
    if isinstance(expression, Activation):
        z = as_number(expression.argument, _number)
        return (z + Abs(z)) / 2
    return _REAL[expression]


def _never_less(larger: Expr, smaller: Expr, *variables: Symbol) -> Outcome:
    good = never_negative((larger - smaller).expand(), *variables)
    return Outcome(good or None, "proved by signs" if good else "neither proved nor refuted by signs")


def _one_function(claim: Claim) -> Outcome:
    """Evaluate a fixed sum of a text t and a prompt p at both prompts; it is linear in t between 0 and 1."""
    texts = (Integer(0), Rational(1, 2), Integer(1))
    first, second = ([_sum(_DISTANCE, t, Integer(p)) for t in texts] for p in (0, 1))
    return Outcome(
        first == second,
        "counterexample, σ = ReLU, G(t, p) = σ(t − p) + σ(p − t), no parameter of which depends on the input: for t ="
        f" {', '.join(map(str, texts))} it is {', '.join(map(str, first))} with p = 0, the function t, and"
        f" {', '.join(map(str, second))} with p = 1, the function 1 − t",
    )


def _two_functions(claim: Claim) -> Outcome:
    """Decide that the corrected sum is the distance of text and prompt, and the sum of the counterexample."""
    name, total, distance = claim.row.equated
    expect(name == applied("G")(_T, _P), "G(t, p)")
    left, right = as_number(total, _number), as_number(distance, _number)
    t, p = _REAL[_T], _REAL[_P]
    points = [(Integer(a), Integer(b)) for a in (-2, 0, 1, 3) for b in (0, 1)]
    same = all(_sum(_DISTANCE, *point) == left.subs(dict(zip((t, p), point, strict=True))) for point in points)
    decided = [_never_less(*pair, t, p) for pair in ((left, right), (right, left))]
    good = same and all(outcome.holds for outcome in decided)
    return Outcome(good or None, f"both sides, {decided[0].how}, with σ = ReLU")


def _nearly_identical(claim: Claim) -> Outcome:
    """Evaluate a fixed sum at two prompts that differ by a millionth."""
    near, steep = Rational(1, 10**6), ((1, (0, 10**6), 0),)
    first, second = (_sum(steep, Integer(0), p) for p in (Integer(0), near))
    return Outcome(
        abs(first - second) <= near,
        f"counterexample, σ = ReLU, G(t, p) = σ(10^6 p): at p = 0 and p = 10^(−6) it is {first} and {second}, and so"
        " for every other pair of prompts with the weight for it",
    )


def _bounded_by_weights(claim: Claim) -> Outcome:
    """Decide that a term's outputs are no farther apart than its pre-activations, with `σ` the ReLU."""
    smaller, larger = (as_number(side, _number) for side in claim.row.related(r"\le"))
    return _never_less(larger, smaller, _REAL[_A], _REAL[_B])


def _sum_of_the_theorem(claim: Claim) -> Outcome:
    name, total = claim.row.equated
    expect(name == APPROXIMATION, "G(x)")
    good = is_the_sum(total)
    return Outcome(good or None, "well formed, and the sum of Lemma 1" if good else "another sum than that of Lemma 1")


def cited(claim: Claim) -> Outcome:
    """Accept a claim as a theorem of other authors, which isn't proved here."""
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
        meant = parameters_replaced(form, updated(depth)).xreplace({i: depth - 1})
        return identity(adapted.x(depth), meant, (adapted.equation_20, *_only_mlp(depth), *S.recursions))

    return at_depths(at, (1, 2))


def _only_mlp(depth: int) -> tuple[Definition, ...]:
    return tuple(Definition(delta(S.W(k, 1)), ZeroMatrix(S.width, S.width)) for k in range(1, depth + 1))


def _lora_in_mlps(claim: Claim) -> Outcome:
    """Prove the induction step of the corrected form at a symbolic layer, for adapters in the MLPs of all layers."""
    # `X + ΔX` is what the recursions make of `W'_{k,2} + ΔW'_{k,2}` and `W'_{k,3} + ΔW'_{k,3}`; `P` and `q` stay.
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

    printed = identity(parameters_replaced(_mended(claim, (_PLUS, _INDEX)), moved), right)
    return both(step, printed, _theorem_with_adapters())


@cache
def _lora_in_all_layers() -> Outcome:
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
    adapted = parameters_replaced(rule.right, lambda p: p if p.letter == "b'" else p + delta(p))
    left, right = claim.row.equated
    return both(identity(left, right, (Definition(delta(S.c(K)), adapted - rule.right),)), _lora_in_all_layers())


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
    "one function": Checks(_one_function, (), _two_functions, _NUMBERS),
    "similar outputs": Checks(_nearly_identical, (), _bounded_by_weights, _NUMBERS),
    "17": Checks(_lora_is_linear, notation=_LORA),
    "18": Checks(
        row_agrees(),
        (partial(_eq_18, misprints=(_PLUS,)), partial(_eq_18, misprints=(_PLUS, _INDEX))),
        _lora_in_mlps,
    ),
    "LoRA layer by layer": Checks(_layer_by_layer, (independent(_theorem_with_adapters),), _change_of_the_bias),
    "19": Checks(_lemma),
}
