"""Decide the claims about the residual network in B.1 and B.2: Eq. 20–27 and the definitions between them."""

from collections.abc import Callable, Iterable
from functools import cache, partial

from sympy import Integer, MatrixExpr, Max, Symbol, exp, limit, oo

from symbolic.audit.attention import attention_moves
from symbolic.audit.checks import both, chain, derived, expect, lines_agree, row_agrees
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.formula import read
from symbolic.audit.letters import applied
from symbolic.audit.linear import mlp_in_matrix_vector_form
from symbolic.audit.notation import THEORY, S, stream, updated_b1
from symbolic.audit.table import rows
from symbolic.audit.updates import Assignment, State, all_at_once, assignments, in_order, paper_layer, updated
from symbolic.blocks.transformer import transformer_block
from symbolic.equality.definition import Definition
from symbolic.expressions.activation import Activation
from symbolic.expressions.ordered_product import written_out
from symbolic.expressions.parameter import Parameter, parameters_replaced
from symbolic.theorems.closed_form import prove, recursions
from symbolic.theorems.residual_stack import ResidualStack, i

K = i + 1

HYPOTHESIS = Definition(S.x(i), S.W(i, 1) * S.x(0) + updated_b1(i) + S.UAT(i))

INDUCTION = (Definition(S.x(i), S.form(i)), S.equation_20, *S.recursions)


@cache
def closed_form_proved() -> Outcome:
    """Decide the closed form in two indices, for every depth."""
    return derived(transformer_block("paper").prove(), "induction over the layers of Eq. 30, two indices")


@cache
def _recursions_proved() -> Outcome:
    """Decide the recursions in two indices."""
    return derived(recursions(depth=4), "the recursions, and the network at depth 4")


def two_indices(claim: Claim) -> Outcome:
    """Decide a correction in two indices: each equation follows from the hypothesis, Eq. 20 and the recursions."""
    return both(*(lines_agree(statement, INDUCTION) for statement in claim.says), _recursions_proved())


def next_layer(expression: MatrixExpr) -> MatrixExpr:
    """Return an expression about layer i for layer i + 1."""
    return expression.xreplace({i: K})


def _eq_20(claim: Claim) -> Outcome:
    """Decide that Eq. 20 is the layer that all proofs start from."""
    left, right = (next_layer(side) for side in claim.row.equated)
    return both(identity(left, right, [S.equation_20]), identity(right, S.equation_20.right))


def _after_lets(claim: Claim, *, run: Callable[[Iterable[Assignment]], State]) -> Outcome:
    """Decide the last equation after the settings before it, where the sums of terms are defined by their own lines."""
    lets = [a for a in assignments(claim.says) if a.target.letter != "UAT"] or assignments(
        read(rows()["000", "23"]["printed"], THEORY)
    )
    sums = [Definition(*s.equated) for s in claim.says[:-1] if getattr(s.sides[0], "letter", "") == "UAT"]
    form = claim.says[-1].equated[1].xreplace({d.left: written_out(d.right, {}) for d in sums})
    return identity(claim.says[-1].equated[0], form.xreplace(run(lets)), [S.equation_20])


def _eq_24(claim: Claim) -> Outcome:
    uat, first = claim.says
    return lines_agree(first, [S.equation_20, Definition(*uat.equated)])


def _sum_with_equal_sizes(claim: Claim) -> Outcome:
    """Compare the printed sum of one layer with that of Eq. 20, with neurons and stream of one size."""
    same = ResidualStack(S.width, S.width)

    def resized(p: Parameter) -> Parameter:
        return Parameter(p.letter, p.lower, S.width, 1 if p.shape[1] == 1 else S.width)

    printed = parameters_replaced(claim.row.equated[1].at(1), resized)
    return identity(same.W(1, 3) * Activation(same.W(1, 2) * same.x(0) + same.b(1, 2)), printed)


def _sum_of_terms(claim: Claim) -> Outcome:
    """Decide the sum with its second indices raised, all symbols the updated ones."""
    left, right = claim.row.equated
    return both(
        identity(left, parameters_replaced(right, updated(i)), S.recursions),
        derived(prove(), "induction with this definition"),
    )


def _own_symbols(claim: Claim) -> Outcome:
    """Decide the lines at i = 2 with every symbol a layer's own, and UAT_2 the sum of these terms."""
    terms = (S.W(k, 3) * Activation(S.W(k, 2) * S.x(0) + S.b(k, 2)) for k in (1, 2))
    own = (Definition(S.UAT(2), sum(terms, 0 * S.x(0))), Definition(updated_b1(2), S.b(2, 3)), S.equation_20)
    first, *lines = (side.xreplace({i: Integer(2)}) for side in claim.row.equated)
    return chain(first, lines, own)


def _settings(claim: Claim, *, as_meant: bool) -> Outcome:
    """Run the settings in order; or four of them at once, then `UAT_{i+1}` with the layer's own matrix."""
    *first, uat = assignments(claim.says[:-1])
    state = all_at_once(first)
    if as_meant:
        own = {S.W(K, 1): S.W(K, 1)}
        state |= {uat.target: uat.value.xreplace(state | own)}
    else:
        state = in_order([*first, uat])
    left, right = claim.says[-1].equated
    return identity(left, right.xreplace(state), [HYPOTHESIS, S.equation_20])


def _affine_as_sigmoids(claim: Claim) -> Outcome:
    """Decide whether t is a sum of terms of a sigmoid, by its limits."""
    t = Symbol("t", real=True)
    bound, grows = limit(1 / (1 + exp(-t)), t, oo), limit(t, t, oo)
    return Outcome(
        grows == bound, f"a sigmoid tends to {bound}, so every finite sum of terms is bounded, and t tends to {grows}"
    )


def _affine_as_relus(claim: Claim) -> Outcome:
    """Decide whether t is a sum of terms of the ReLU, by the signs of t."""
    positive = Symbol("p", positive=True)
    good = all(Max(0, v) - Max(0, -v) == v for v in (positive, Integer(0), -positive))
    return Outcome(good, "max(0, t) − max(0, −t) = t for t > 0, t = 0 and t < 0")


def closed(claim: Claim) -> Outcome:
    """Decide the closed form that corrects a claim: with its layers' terms, at layer i + 1."""
    left, right = claim.row.equated
    expect(left == S.x(i), "a closed form of x'_i")
    return both(identity(next_layer(left), next_layer(right), INDUCTION), closed_form_proved())


def _at_two(claim: Claim) -> Outcome:
    """Decide a correction at depth 2, against the network."""
    left, right = claim.row.equated
    network = identity(left, right, [S.equation_20, *S.recursions])
    return both(network, _recursions_proved())


def _acts_on(claim: Claim, function: str) -> MatrixExpr:
    """Return the right side of Eq. 28 or 29, which act on `x_i`, with the index of the layer that does, i + 1."""
    left, right = claim.row.related(r"\mapsto")
    expect(left == applied(function)(stream(i)), f"{function}(x_i)")
    raised = {p: p.xreplace({i: K}) for p in right.atoms(Parameter) if p != S.x(i)}
    return right.xreplace(raised)


_Y = S.W(K, 1) * S.x(i)


def _eq_28(claim: Claim) -> Outcome:
    """Decide the first part of Eq. 30, and that it is attention with its pattern held."""
    return both(identity(_acts_on(claim, "MHA"), _Y), attention_moves())


def _eq_29(claim: Claim) -> Outcome:
    """Decide the second part of Eq. 30, the MLP of the first, and that it is the MLP in matrix-vector form."""
    second = _acts_on(claim, "FFN").xreplace({S.x(i): _Y})
    return both(identity(_Y + second, paper_layer().right), mlp_in_matrix_vector_form())


def eq_31(claim: Claim) -> Outcome:
    """Decide Eq. 31 with its `W'_{i+1,2}` set as printed before it, against Eq. 30."""
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
    "20": Checks(_eq_20),
    "21": Checks(row_agrees(S.equation_20)),
    "22": Checks(row_agrees(S.equation_20)),
    "23": Checks(partial(_after_lets, run=in_order), (partial(_after_lets, run=all_at_once),), _at_two),
    "24": Checks(_eq_24),
    "25": Checks(partial(_after_lets, run=in_order), (partial(_after_lets, run=all_at_once),), _at_two),
    "definition of UAT in B.2": Checks(row_agrees(), (_sum_with_equal_sizes,), _sum_of_terms),
    "26": Checks(_own_symbols, (row_agrees(HYPOTHESIS),), two_indices),
    "27": Checks(_own_symbols, (row_agrees(HYPOTHESIS),), two_indices),
    "UAT of layer i+1": Checks(partial(_settings, as_meant=False), (partial(_settings, as_meant=True),), two_indices),
    "a single term": Checks(_affine_as_sigmoids, (_affine_as_relus,), closed),
    "28": Checks(_eq_28),
    "29": Checks(_eq_29),
    "30": Checks(row_agrees(paper_layer())),
    "31": Checks(eq_31, correction=eq_31),
    "32": Checks(_eq_32_printed, correction=_eq_32),
    "settings below 32": Checks(_after_32, correction=_after_32),
}
