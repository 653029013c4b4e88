"""Decide the claims of B.3, which leads from the residual network to the Transformer: Eq. 28–32."""

from sympy import MatrixExpr

from symbolic.audit.bold import bold
from symbolic.audit.checks import both, expect, row_agrees
from symbolic.audit.claim import Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.held_attention import attention_moves
from symbolic.audit.letters import applied
from symbolic.audit.linear import mlp_in_matrix_vector_form
from symbolic.audit.notation import S, stream
from symbolic.audit.residual import HYPOTHESIS, K
from symbolic.audit.updates import all_at_once, assignments, paper_layer
from symbolic.expressions.parameter import Parameter
from symbolic.theorems.residual_stack import i


def _acts_on(claim: Claim, what: str) -> MatrixExpr:
    """Return the right side of Eq. 28 or 29, which act on `x_i`, with the index of the layer that does, i + 1."""
    left, right = claim.row.related(r"\mapsto")
    expect(left == applied(what)(stream(i)), f"{what}(x_i)")
    raised = {p: p.xreplace({i: K}) for p in right.atoms(Parameter) if p != S.x(i)}
    return right.xreplace(raised)


_Y = S.W(K, 1) * S.x(i)


def _eq_28(claim: Claim) -> Outcome:
    """Decide the first part of Eq. 30, and that it is attention with its pattern held."""
    return both(identity(_acts_on(claim, "MHA"), _Y), attention_moves())


def _eq_29(claim: Claim) -> Outcome:
    """Decide the second part of Eq. 30, the MLP of the first, and that it is the MLP in matrix-vector form."""
    second = _acts_on(claim, "FFN").xreplace({S.x(i): _Y})
    return both(
        identity(_Y + second, paper_layer().right),
        mlp_in_matrix_vector_form(),
    )


def eq_31(claim: Claim) -> Outcome:
    """Decide Eq. 31 with its `W'_{i+1,2}` set as printed before it, against Eq. 30.

    Args:
        claim: the setting and the equation.
    """
    *lets, form = claim.says
    left, right = form.equated
    return identity(left, right.xreplace(all_at_once(assignments(lets))), [paper_layer()])


def _eq_32_printed(claim: Claim) -> Outcome:
    expect(all(line.has(S.W(i, 3)) for line in claim.row.equated[1:]), "W'_{i,3} in every line")
    return _eq_32(claim)


_eq_32 = row_agrees(HYPOTHESIS, S.equation_20)


def _after_32(claim: Claim) -> Outcome:
    """Decide the settings below Eq. 32, all at once, in the form printed below them."""
    *lets, form = claim.says
    left, right = form.equated
    b1 = {S.b(K, 3): S.b(K, 3)}
    return identity(left, right.xreplace(b1 | all_at_once(assignments(lets))), [HYPOTHESIS, S.equation_20])


_GENERAL = bold(r"x'_{i+1}=(W'_{i+1,1}x'_{i}+b'_{i+1,3})+W'_{i,3}σ(W'_{i+1,2}x'_{i}+b'_{i+1,2})")

_OUTER = ((r"\mathbf{W}'_{i,3}", r"\mathbf{W}'_{i+1,3}"),)

_PRIMES = tuple((bold(name), bold(name.replace("_", "'_"))) for name in ("W_{i,1}", "x_{0}", "b_{i,1}"))

_SETTINGS_32 = (
    r"W'_{i+1,1}=W'_{i+1,1}W_{i,1},\;b'_{i+1,3}=(W'_{i+1,1}b_{i,1}+b'_{i+1,3}),\;UAT_{i}=W'_{i+1,1}UAT_{i},\;"
    r"W'_{i+1,2}=W'_{i+1,2}W_{i,1},\;b'_{i+1,2}=(W'_{i+1,2}b_{i,1}+b'_{i+1,2})+W'_{i+1,2}UAT_{i}"
)

CLAIMS = (
    Claim(
        "28",
        r"MHA(\mathbf{x}_{i})\mapsto " + bold(r"W'_{i,1}x'_{i}"),
        _eq_28,
        remark="W'_{i,1} depends on the input, as the paper says: with the patterns held it is that matrix. What acts"
        " on x_i is layer i + 1, so in Eq. 30 the same matrix has the index i + 1.",
    ),
    Claim(
        "29",
        r"FFN(\mathbf{x}_{i})\mapsto " + bold(r"W'_{i,3}σ(W'_{i,2}x'_{i}+b'_{i,2})+b'_{i,3}"),
        _eq_29,
        remark="What acts on x_i is layer i + 1, so in Eq. 30 its parameters have the index i + 1; and there the x_i of"
        " the MLP is W'_{i+1,1} x'_i.",
    ),
    Claim(
        "30",
        bold(
            r"\begin{aligned}x'_{i+1}&=W'_{i+1,1}x'_{i}+W'_{i+1,3}σ[W'_{i+1,2}(W'_{i+1,1}x'_{i})+b'_{i+1,2}]+b'_{i+1,3}\\"
            r"&=W'_{i+1,1}x'_{i}+W'_{i+1,3}σ(W'_{i+1,2}W'_{i+1,1}x'_{i}+b'_{i+1,2})+b'_{i+1,3}\end{aligned}"
        ),
        row_agrees(paper_layer()),
        remark="A block without attention residual and normalisation; blocks that have them are instances of"
        " Eq. 20 too.",
    ),
    Claim(
        "31",
        r"\text{with }" + bold(r"W'_{i+1,2}=W'_{i+1,2}W'_{i+1,1}\text{: }") + _GENERAL,
        eq_31,
        remark="The index of W'_{i,3} is one too low; the sentence after it prints W'_{i+1,3}.",
        correct=_OUTER,
        correction=eq_31,
    ),
    Claim(
        "32",
        bold(
            r"\begin{aligned}x'_{i+1}&=(W'_{i+1,1}x'_{i}+b'_{i+1,3})+W'_{i,3}σ(W'_{i+1,2}x'_{i}+b'_{i+1,2})\\"
            r"&=\{W'_{i+1,1}[(W_{i,1}x_{0}+b_{i,1})+UAT_{i}]+b'_{i+1,3}\}"
            r"+W'_{i,3}σ\{W'_{i+1,2}[(W_{i,1}x_{0}+b_{i,1})+UAT_{i}]+b'_{i+1,2}\}\\"
            r"&=[W'_{i+1,1}W_{i,1}x_{0}+(W'_{i+1,1}b_{i,1}+b'_{i+1,3})]+W'_{i+1,1}UAT_{i}\\"
            r"&\quad+W'_{i,3}σ\{W'_{i+1,2}W_{i,1}x_{0}+(W'_{i+1,2}b_{i,1}+b'_{i+1,2})+W'_{i+1,2}UAT_{i}\}\end{aligned}"
        ),
        _eq_32_printed,
        unprimed=("W_i,1", "x_0", "b_i,1") * 4,
        remark="The lines follow from one another and from the hypothesis of B.2; the index of W'_{i,3} is one too"
        " low in all of them. B.3 prints its hypothesis with b_{i,3} for b_{i,1}, and the last line has one"
        " bracket too many, which is left out here.",
        correct=(*_OUTER, *_PRIMES),
        correction=_eq_32,
    ),
    Claim(
        "settings below 32",
        bold(
            rf"\begin{{aligned}}&\text{{let }}{_SETTINGS_32}\text{{:}}\\"
            r"&x'_{i+1}=(W'_{i+1,1}x_{0}+b'_{i+1,3})+UAT_{i}+W'_{i,3}σ(W'_{i+1,2}x_{0}+b'_{i+1,2})\end{aligned}"
        ),
        _after_32,
        unprimed=(*("W_i,1", "b_i,1", "x_0") * 2,),
        remark="Even with all symbols set at once, W'_{i,3} is the misprint of Eq. 31.",
        correct=(*_OUTER, *_PRIMES),
        correction=_after_32,
    ),
)
