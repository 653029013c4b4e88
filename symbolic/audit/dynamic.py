"""Decide which parameters depend on the input, and which are constant."""

from functools import cache, partial

from sympy import MatrixExpr, Symbol
from sympy.core.relational import Relational

from symbolic.audit.checks import both, expect
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.counterexample import Outcome
from symbolic.audit.notation import S
from symbolic.audit.residual import K
from symbolic.audit.statement import Statement
from symbolic.audit.updates import updated
from symbolic.blocks.transformer import transformer_block
from symbolic.equality.normal_form import normal_form
from symbolic.expressions.parameter import Held, Parameter
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
    """Decide which parameters move with the input, in a network of Eq. 30 with i + 1 layers.

    Args:
        claim: parameters with index j, and behind them the range of j for which all of them are said to move.
        own: whether `W'_{j,k}` is a layer's own parameter; otherwise it is the updated one, of the closed form.
        left_out: parameters of the closed form that move too, and that the stated ranges leave out.
        depth: number of layers.
    """
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


CHECKS = {
    "dynamic parameters": Checks(
        partial(dynamic_parameters, own=True),
        (partial(dynamic_parameters, left_out=(S.C(1, K),)),),
        dynamic_parameters,
    )
}
