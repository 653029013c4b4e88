"""Decide the claims about the closed form and its update rules: Eq. 11, 12, 33 and 34."""

from functools import cache, partial

from sympy import MatrixExpr, Symbol
from sympy.core.relational import Relational

from symbolic.audit.checks import at_depths, both, expect
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.letters import Statement
from symbolic.audit.notation import S, stream
from symbolic.audit.residual import INDUCTION, K, closed, closed_form_proved, two_indices
from symbolic.audit.updates import DEPTHS, READINGS, closed_form, fold, paper_layer, paper_recursions, reach, updated
from symbolic.blocks.transformer import transformer_block
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import normal_form
from symbolic.expressions.activation import Activation
from symbolic.expressions.ordered_product import written_out
from symbolic.expressions.parameter import Held, Parameter, parameters_replaced
from symbolic.theorems.residual_stack import i, j


@cache
def _moving(parameter: MatrixExpr) -> bool:
    """Tell whether a parameter contains an attention pattern, in a network of Eq. 30."""
    form = normal_form(parameter, (*S.recursions, *transformer_block("paper").parameters)).expression()
    return bool(form.atoms(Held))


_RELATION = {"<": "<", ">": ">", r"\le": "<=", r"\ge": ">="}


def _stated(statement: Statement, depth: int) -> set[int]:
    """Return the layers j that a printed range names, with i + 1 layers."""
    expect(j in statement.sides, "a range of j")
    expect(set(statement.relations) <= set(_RELATION), "a range of j between bounds")
    sides = [side.subs(i, depth - 1) for side in statement.sides]

    def inside(k: int) -> bool:
        values = [side.subs(j, k) for side in sides]
        pairs = zip(values, statement.relations, values[1:], strict=False)
        return all(bool(Relational(a, b, _RELATION[relation])) for a, relation, b in pairs)

    return {k for k in range(-2, depth + 3) if inside(k)}


def _with_ranges(statements: tuple[Statement, ...]) -> list[Statement]:
    """Return statements with `j = 1, …, i` as `1 ≤ j ≤ i`."""
    ranges: list[Statement] = []
    for statement in statements:
        if len(ranges) > 1 and ranges[-1].sides[0] == Symbol("...") and ranges[-2].relations == ("=",):
            (letter, first), _ = ranges[-2].sides, ranges.pop()
            ranges[-1] = Statement((first, letter, statement.sides[0]), (r"\le", r"\le"))
        else:
            ranges.append(statement)
    return ranges


def dynamic_parameters(
    claim: Claim, *, own: bool = False, left_out: tuple[Parameter, ...] = (), depth: int = 4
) -> Outcome:
    """Decide which parameters move with the input, in a network of Eq. 30 with i + 1 layers."""
    outcomes: list[Outcome] = []
    waiting: list[Parameter] = []
    kinds: list[str] = []
    for statement in _with_ranges(claim.says):
        if not statement.relations:
            expect(isinstance(statement.sides[0], Parameter), "parameters before a range")
            waiting += statement.sides
            continue
        stated, moving = _stated(statement, depth), set(range(1, depth + 1))
        for p in waiting:
            closed_one = updated(K)(p)
            expect(p.lower[0] == j, f"{p} with index j")
            kinds.append(closed_one.letter)
            meant = p if own else closed_one
            moving &= {k for k in moving if _moving(meant.xreplace({j: k, i: depth - 1}))}
            tolerated = [k for k in moving if closed_one.xreplace({j: k}) in left_out]
        names = " and ".join(map(str, waiting))
        how = f"of {depth} layers, attention is in {names} for j in {sorted(moving)}; stated: {sorted(stated)}"
        outcomes.append(Outcome(moving == {*stated, *tolerated}, how, f"{depth} layers"))
        waiting = []
    expect(sorted(kinds) == ["B", "C", "P"] and not waiting, "three parameters, with a range behind them")
    return both(*outcomes)


def _own_symbols(claim: Claim) -> Outcome:
    """Decide the closed form with every symbol a layer's own; the printed rule for i = 0 is applied."""
    form = claim.row.equated[1]
    return at_depths(lambda d: identity(S.x(d), closed_form(form, d).xreplace(fold(1)), [paper_layer()]), DEPTHS)


def _updated_symbols(claim: Claim) -> Outcome:
    left, right = claim.row.equated
    form = identity(left, parameters_replaced(right, updated(K)), INDUCTION)
    return both(form, closed_form_proved())


def _bias_own(claim: Claim) -> Outcome:
    """Compare Eq. 12, every symbol on its right a layer's own, with the bias of a network of Eq. 20."""
    _, right = claim.row.equated
    return at_depths(lambda d: identity(S.c(d), written_out(right, {j: d}), S.recursions), DEPTHS[1:])


def bias_two_indices(claim: Claim) -> Outcome:
    """Decide Eq. 12 with the meaning that the derivation gives every symbol, for a symbolic layer."""
    left, right = claim.row.equated

    def rule(p: Parameter) -> MatrixExpr:
        return p if p in (S.W(j, 2), S.b(j, 2)) else updated(j - 1)(p)

    meant = parameters_replaced(right, rule)
    expect(left == S.b(j, 2), "the bias b'_{j,2}")
    return identity(S.c(K), meant.xreplace({j: K}), S.recursions)


def bias_in_two_indices(claim: Claim) -> Outcome:
    """Decide the correction of Eq. 12, for a symbolic layer."""
    left, right = (side.xreplace({j: K}) for side in claim.row.equated)
    return identity(left, right, S.recursions)


def _serial(claim: Claim, before: MatrixExpr) -> Outcome:
    left, right = claim.row.equated
    expect(left == S.W(3, 1), "W'_{3,1}")
    return identity(S.P(3), right.xreplace({S.W(2, 1): before}), S.recursions)


def _terms_inside(claim: Claim, fewer: int, layer: int = 4) -> Outcome:
    """Compare the number of terms in the updated bias of a layer with the stated one."""
    bias, stated, source = (statement.sides[0] for statement in claim.says)
    expect(isinstance(bias, Parameter) and updated(i)(bias) == S.c(j), "the updated b'_{j,2}")
    expect(source == stream(0), "the input x_0")
    terms = normal_form(S.c(layer), S.recursions).expression()
    count = sum(isinstance(part, Activation) or isinstance(part.args[-1], Activation) for part in terms.args)
    named = stated.subs(j, layer) - fewer
    how = f"c_{layer} contains the terms of {count} layers; stated: {named}"
    return Outcome(count == named, how, f"j = {layer}")


def _rules_per_layer(claim: Claim) -> Outcome:
    """Run the corrected rules as a program and as recursions, with `W'_{i+1,2}` folded for every layer."""
    program = reach(claim.says, "per layer")
    own = paper_recursions()
    stated = [s for s in claim.says if getattr(s.sides[0], "letter", "") in ("P", "q", "B", "C")]
    rules = {d.left: d.right for d in own}
    expect(len(stated) == 5 and all(s.sides[0] in rules for s in stated), "the five recursions")
    whole = identity(S.x(K), S.form(K), (Definition(S.x(i), S.form(i)), paper_layer(), *own))
    return both(
        Outcome(program.holds, f"run for every new layer: {program.how}"),
        *(identity(value, rules[name]) for name, value in (s.equated for s in stated)),
        whole,
        closed_form_proved(),
    )


def _reach(claim: Claim, reading: str) -> Outcome:
    return reach(claim.says, reading)


_BIAS = Checks(_bias_own, (bias_two_indices,), bias_in_two_indices)

_UPDATE_RULES = Checks(
    partial(_reach, reading=READINGS[0]),
    tuple(partial(_reach, reading=name) for name in READINGS[1:]),
    _rules_per_layer,
)

CHECKS = {
    "11": Checks(_own_symbols, (_updated_symbols,), closed),
    "update rules below 11": _UPDATE_RULES,
    "12": _BIAS,
    "bias and j-layer UAT": Checks(
        partial(_terms_inside, fewer=0), (partial(_terms_inside, fewer=1),), bias_in_two_indices
    ),
    "dynamic parameters": Checks(
        partial(dynamic_parameters, own=True),
        (partial(dynamic_parameters, left_out=(S.C(1, K),)),),
        dynamic_parameters,
    ),
    "33": Checks(_own_symbols, (_updated_symbols,), closed),
    "update rules below 33": _UPDATE_RULES,
    "34": _BIAS,
    "serial computation": Checks(partial(_serial, before=S.W(2, 1)), (partial(_serial, before=S.P(2)),), two_indices),
}
