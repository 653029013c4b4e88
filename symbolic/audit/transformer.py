"""Decide the claims of B.3, which leads from the residual network to the Transformer: Eq. 28–32."""

from sympy import MatrixExpr

from symbolic.audit.checks import both, expect, row_agrees
from symbolic.audit.claim import Checks, Claim
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


CHECKS = {
    "28": Checks(_eq_28),
    "29": Checks(_eq_29),
    "30": Checks(row_agrees(paper_layer())),
    "31": Checks(eq_31, correction=eq_31),
    "32": Checks(_eq_32_printed, correction=_eq_32),
    "settings below 32": Checks(_after_32, correction=_after_32),
}
