"""Decide the claims about the closed form and its update rules: Eq. 11, 12, 33 and 34."""

from dataclasses import replace
from functools import partial

from sympy import MatrixExpr

from symbolic.audit import dynamic
from symbolic.audit.bold import bold
from symbolic.audit.checks import at_depths, both, expect, rewritten
from symbolic.audit.claim import Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.formula import read
from symbolic.audit.notation import THEORY, S, stream
from symbolic.audit.residual import CLOSED, INDUCTION, K, closed, closed_form_proved, two_indices
from symbolic.audit.statement import Statement
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


_RULES = bold(
    r"P_{i+1}=W'_{i+1,1}P_{i},\;q_{i+1}=W'_{i+1,1}q_{i}+b'_{i+1,3},\;B_{i+1}=W'_{i+1,2}W'_{i+1,1}P_{i},\;"
    r"C_{j}^{(i+1)}=W'_{i+1,1}C_{j}^{(i)},\;C_{i}^{(i)}=W'_{i,3}"
)

_BIAS = bold(r"c_{j}=W'_{j,2}q_{j-1}+b'_{j,2}+W'_{j,2}\sum_{k=1}^{j-1}C_{k}^{(j-1)}σ(B_{k}x'_{0}+c_{k})")

_PRINTED_BIAS = bold(
    r"b'_{j,2}=(W'_{j,2}b'_{j-1,3}+b'_{j,2})+W'_{j,2}\sum_{k=1}^{j-1}W'_{k,3}σ(W'_{k,2}x'_{0}+b'_{k,2})"
)

_FORM = bold(r"x_{i+1}=(W'_{i+1,1}x_{0}+b_{i+1,3})+\sum_{j=1}^{i+1}W'_{j,3}σ(W'_{j,2}x'_{0}+b'_{j,2})")

_FORM_UNPRIMED = ("x_i+1", "x_0", "b_i+1,3")

_START, _CARRIED = (bold(text) for text in (r"W'_{1,2}=W'_{1,2}W'_{1,1}", r"W'_{j,3}=W'_{j+1,1}W'_{j,3}"))

_PRINTED_RULES = (
    rf"\begin{{aligned}}i=0:\;&{_START};\\j=1,\ldots,i:\;&"
    + bold(r"W'_{j+1,1}=W'_{j+1,1}W_{j,1},\;b'_{j+1,3}=W'_{j+1,1}b_{j,3}+b'_{j+1,3},\;W'_{j+1,2}=W'_{j+1,2}W_{j,1},\;")
    + rf"{_CARRIED}\end{{aligned}}"
)

_MENDED_RULES = (
    (rf"i=0:\;&{_START}", r"i\ge 0:\;&" + bold(r"W'_{i+1,2}=W'_{i+1,2}W'_{i+1,1}")),
    (r"j=1,\ldots,i:", r"i\ge 1:"),
    (rf",\;{_CARRIED}", rf";\\j=1,\ldots,i:\;&{_CARRIED}"),
    ("j+1", "i+1"),
    (r"\mathbf{W}_{j,1}", r"\mathbf{W}_{i,1}"),
    (r"\mathbf{b}_{j,3}", r"\mathbf{b}_{i,3}"),
    (r"\mathbf{W}_{", r"\mathbf{W}'_{"),
    (r"\mathbf{b}_{", r"\mathbf{b}'_{"),
    (r"\end{aligned}", rf"\\\text{{that is}}:\;&{_RULES}\end{{aligned}}"),
)

_TWO_INDICES = "the symbols are the updated ones, in two indices"

_RULES_REMARK = (
    "One symbol stands for a parameter before and after its update. In no reading does W'_{1,3} meet W'_{3,1}"
    " once at depth 3: j + 1 should be i + 1, for every new layer i + 1, and only the last rule runs over j."
    " And W'_{k,2} W'_{k,1}, which every layer needs, is set for layer 1 only, so that B_2 is wrong already."
)


def rules_as_printed(statements: tuple[Statement, ...]) -> Rules:
    """Return update rules with Eq. 12 and 33, which go with them.

    Args:
        statements: the rules, as read.
    """
    (bias,), (form,) = read(_PRINTED_BIAS, THEORY), read(_FORM, THEORY, _FORM_UNPRIMED)
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


_IN_READINGS = {words: partial(_reach, reading=name) for name, words in READINGS.items() if name != "in order"}

_UPDATE_RULES = Claim(
    "update rules below 11",
    _PRINTED_RULES,
    partial(_reach, reading="in order"),
    readings=_IN_READINGS,
    unprimed=("W_j,1", "W_j,1", "b_j,3"),
    remark=_RULES_REMARK,
    correct=_MENDED_RULES,
    correction=_rules_per_layer,
)

CLAIMS = (
    Claim(
        "11",
        _FORM.replace(r"\mathbf{b}_{i+1,3}", r"\mathbf{b}_{i+1,1}"),
        _own_symbols,
        readings={
            f"{_TWO_INDICES}, and b_{{i+1,1}}, which no rule sets, is the updated b'_{{i+1,3}}": _updated_symbols
        },
        unprimed=("x_i+1", "x_0", "b_i+1,1"),
        correct=CLOSED,
        correction=closed,
    ),
    _UPDATE_RULES,
    Claim(
        "12",
        _PRINTED_BIAS,
        _bias_own,
        readings={
            "on the right W'_{j,2} and b'_{j,2} are the layer's own, W'_{k,3} is carried to layer j − 1,"
            " all else is updated": bias_two_indices
        },
        correct=_BIAS,
        correction=bias_in_two_indices,
    ),
    Claim(
        "bias and j-layer UAT",
        r"\text{The term }"
        + bold(r"b'_{j,2}")
        + r"\text{ is approximated by the }j\text{ layer UAT with }"
        + bold(r"x_{0}\text{ as input}"),
        partial(_terms_inside, fewer=0),
        readings={
            "the UAT is the one inside layer j, which has the terms of j − 1 layers": partial(_terms_inside, fewer=1)
        },
        remark="It equals an affine map of what j − 1 layers compute, exactly.",
        correct=bold(r"c_{j}=b'_{j,2}+W'_{j,2}(q_{j-1}+UAT_{j-1})"),
        correction=bias_in_two_indices,
    ),
    *dynamic.CLAIMS,
    Claim(
        "33",
        _FORM,
        _own_symbols,
        readings={_TWO_INDICES: _updated_symbols},
        unprimed=_FORM_UNPRIMED,
        correct=CLOSED,
        correction=closed,
    ),
    replace(_UPDATE_RULES, equation="update rules below 33"),
    Claim(
        "34",
        _PRINTED_BIAS,
        _bias_own,
        readings={
            "read as Eq. 12 is, with b'_{0,3} = 0 and an empty sum for j = 1, which the text adds": bias_two_indices
        },
        correct=_BIAS,
        correction=bias_in_two_indices,
    ),
    Claim(
        "serial computation",
        bold(r"W'_{3,1}=W'_{3,1}W'_{2,1}"),
        partial(_serial, before=S.W(2, 1)),
        readings={"W'_{2,1} on the right is updated already": partial(_serial, before=S.P(2))},
        correct=bold(r"P_{3}=W'_{3,1}P_{2}"),
        correction=two_indices,
    ),
)
