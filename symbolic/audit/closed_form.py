"""Decide the claims about the closed form and its update rules: Eq. 11, 12, 33 and 34."""

from functools import partial

from sympy import MatrixExpr

from symbolic.audit import dynamic
from symbolic.audit.checks import at_depths, both, expect, rewritten
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.formula import read
from symbolic.audit.notation import THEORY, S, stream
from symbolic.audit.residual import INDUCTION, K, closed, closed_form_proved, two_indices
from symbolic.audit.statement import Statement
from symbolic.audit.table import rows
from symbolic.audit.updates import (
    DEPTHS,
    READINGS,
    Rules,
    at,
    closed_form,
    fold,
    paper_layer,
    reach,
    rules_of,
    updated,
)
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import normal_form
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Parameter
from symbolic.theorems.residual_stack import i, j


def _own_symbols(claim: Claim) -> Outcome:
    """Decide the closed form with every symbol a layer's own; the printed rule for i = 0 is applied."""
    form = claim.row.equated[1]
    return at_depths(lambda d: identity(S.x(d), closed_form(form, d).xreplace(fold(1)), [paper_layer()]), DEPTHS)


def _updated_symbols(claim: Claim) -> Outcome:
    left, right = claim.row.equated
    form = identity(left, rewritten(right, updated(K)), INDUCTION)
    return both(form, closed_form_proved())


def _bias_own(claim: Claim) -> Outcome:
    """Compare Eq. 12, every symbol on its right a layer's own, with the bias of a network of Eq. 20."""
    _, right = claim.row.equated
    return at_depths(lambda d: identity(S.c(d), at(right, {j: d}), S.recursions), DEPTHS[1:])


def bias_two_indices(claim: Claim) -> Outcome:
    """Decide Eq. 12 with the meaning that the derivation gives every symbol, for a symbolic layer.

    Args:
        claim: the claim.
    """
    left, right = claim.row.equated

    def rule(p: Parameter) -> MatrixExpr:
        return p if p in (S.W(j, 2), S.b(j, 2)) else updated(j - 1)(p)

    meant = rewritten(right, rule)
    expect(left == S.b(j, 2), "the bias b'_{j,2}")
    return identity(S.c(K), meant.xreplace({j: K}), S.recursions)


def bias_in_two_indices(claim: Claim) -> Outcome:
    """Decide the correction of Eq. 12, for a symbolic layer.

    Args:
        claim: the claim.
    """
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


def rules_as_printed(statements: tuple[Statement, ...]) -> Rules:
    """Return update rules with Eq. 12 and 33, which go with them.

    Args:
        statements: the rules, as read.
    """
    tables = (rows()["000", equation] for equation in ("12", "33"))
    (bias,), (form,) = (read(fields["printed"], THEORY, fields["unprimed"]) for fields in tables)
    return rules_of(statements, bias, form)


def _rules_per_layer(claim: Claim) -> Outcome:
    """Run the corrected rules as a program and as recursions, with `W'_{i+1,2}` folded for every layer."""
    program = reach(rules_as_printed(claim.says), "per layer")
    folded = {S.W(K, 2): S.W(K, 2) * S.W(K, 1)}
    own = [Definition(d.left, d.right.xreplace(folded), d.variables, d.where) for d in S.recursions]
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
    return reach(rules_as_printed(claim.says), reading)


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
    **dynamic.CHECKS,
    "33": Checks(_own_symbols, (_updated_symbols,), closed),
    "update rules below 33": _UPDATE_RULES,
    "34": _BIAS,
    "serial computation": Checks(partial(_serial, before=S.W(2, 1)), (partial(_serial, before=S.P(2)),), two_indices),
}
