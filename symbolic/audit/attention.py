"""Decide the claims about attention as a matrix: Eq. 7–10 and 35, and Appendices A and C."""

from functools import cache

from sympy import Expr, ImmutableMatrix, Integer, Rational, Symbol, exp, log, sqrt

from symbolic.audit import density, heads
from symbolic.audit.checks import both, chain, derived, every, expect, independent, row_agrees
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.heads import HEADS, JOINED, OUTPUT, W_HVO, M, N, X
from symbolic.audit.letters import applied
from symbolic.equality.definition import Definition
from symbolic.evaluation.interpreter import Interpreter, exact
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.operations import Vec
from symbolic.expressions.parameter import Parameter
from symbolic.vectorisation.attention import attention, attention_derivation, pattern_derivation
from symbolic.vectorisation.entries import entries, same


def _pattern_moves() -> Outcome:
    """Compare attention of 2x with twice attention of x, at two tokens 0 and t with exp(t²) = 2, all weights 1."""
    t = sqrt(log(2))

    def second(x: Expr) -> Expr:
        weight = exp(x**2)  # of token 2 on itself; on token 1, which is 0, the weight is 1
        return x * weight / (1 + weight)

    once, twice = 2 * second(t) / t, second(2 * t) / t
    return Outcome(
        once == twice,
        "one head, all weights 1, tokens 0 and t with exp(t²) = 2: MHA(2x) is"
        f" {twice} t and 2 MHA(x) is {once} t at token 2, so no fixed matrix gives MHA",
    )


@cache
def attention_moves() -> Outcome:
    """Decide that attention with its pattern held is a matrix times `x'`, and say that the matrix moves with `x'`."""
    held = chain(Vec(JOINED * OUTPUT), [W_HVO * Vec(X)])
    return Outcome(held.holds, f"with the pattern held: {held.how}; the matrix depends on x: {_pattern_moves().how}")


@cache
def held_pattern() -> Outcome:
    """Decide that attention is one matrix once its pattern is held, for all sizes and entry by entry."""
    return both(attention_moves(), derived(attention_derivation(), "attention as one Kronecker sum"))


def _concatenation(claim: Claim) -> Outcome:
    """Decide Eq. 7 with heads of N × M/h, whose concatenation is written as a sum, compared entry by entry."""
    name, multi, joined, short = claim.row.equated
    expect(name == Parameter("H°", (), N, M), "the output H̊")
    expect(multi == applied("MultiHead")(*map(Symbol, "QKV")), "MultiHead(Q, K, V)")
    total, output = joined.args
    two = [entries(Parameter("H^", (k,), 3, 2)) for k in (1, 2)]
    places = [ImmutableMatrix(4, 2, lambda r, c, k=k: int(r == 2 * k + c)) for k in (0, 1)]
    values = {"H^": two, "S": places}
    interpreter = Interpreter(lambda p: values[p.letter][int(p.lower[0]) - 1], exact(abs), sizes={HEADS: Integer(2)})
    concatenated = same(interpreter.value(total), ImmutableMatrix.hstack(*two))
    distributed = IndexedSum(total.body * output, total.index, total.first, total.last)
    return both(
        identity(joined, short),
        identity(joined, distributed),
        Outcome(
            concatenated, "Σ Ĥ_k S_k^T is the heads of N × M/h side by side, entry by entry at N = 3, M = 4, h = 2"
        ),
    )


def _attention_is_formed(claim: Claim) -> Outcome:
    """Compare Eq. 8, with the letters that its own arguments define, with one head written out in `x_i`."""
    function, *lines = claim.row.equated
    expect(function.args[0].name == "Attention" and len(function.args) == 4, "Attention of Q, K and V")
    let = [Definition(letter, value) for value, letter in function.args[1:]]
    let += [heads.HELD_PATTERN, Definition(lines[-1], lines[-2])]
    return chain(heads.ONE_HEAD, lines, let)


_matrix_of_attention = every(row_agrees(), independent(attention_moves))

_mended_lines = every(row_agrees(), independent(held_pattern))


def _for_its_transpose(claim: Claim) -> Outcome:
    """Decide the caption with `W'_{HV}` for its transpose, as the text does with `W'_i` and `W'`."""
    left, right = claim.row.equated
    return identity(left.xreplace({heads.TRANSPOSED_HV: heads.W_HV}), right)


@cache
def order_of_transposed() -> Outcome:
    """Decide `W'_{HVO} = W'_{HV} W'_O` for the matrices that are applied transposed, entry by entry."""
    good = all(
        ((a.value.matrix.T * a.output.matrix.T).T - a.whole.matrix).expand().is_zero_matrix
        for a in (attention(*size) for size in density.SIZES)
    )
    return Outcome(good, f"entry by entry at {len(density.SIZES)} sizes")


def _scores(claim: Claim) -> Outcome:
    name, *lines = claim.row.equated
    expect(name == heads.HELD_PATTERN.left, "H_i")
    reference = heads.HELD_PATTERN.right
    return both(chain(reference, lines, [heads.W_QK]), derived(pattern_derivation(), "every entry, written out"))


def _covariance(claim: Claim) -> Outcome:
    """Move all tokens by the same vector, which leaves a covariance as it is but not the scores."""
    x, moved = ImmutableMatrix([1, 2]), ImmutableMatrix([2, 3])
    centred = [v - ImmutableMatrix([sum(v) / Rational(2)] * 2) for v in (x, moved)]
    covariances, scores = ([v.T * v / 2 for v in centred], [v * v.T for v in (x, moved)])
    return Outcome(
        scores[0] == scores[1],
        f"counterexample, N = 2, M = 1, W_{{QK}} = 1: with x = {x.tolist()} and x = {moved.tolist()} the covariance is"
        f" {covariances[0][0]} and {covariances[1][0]}, and the scores are {scores[0].tolist()} and"
        f" {scores[1].tolist()}",
    )


def _gram(claim: Claim) -> Outcome:
    """Decide whether the scores of the correction are those of Eq. 35."""
    name, line = claim.mended.row.equated
    expect(name == heads.HELD_PATTERN.left, "H_i")
    return identity(heads.HELD_PATTERN.right, line, [heads.W_QK])


CHECKS = {
    "7": Checks(_concatenation, notation=heads.SIDE_BY_SIDE),
    "8": Checks(_attention_is_formed, notation=heads.ATTENTION),
    "9": Checks(_matrix_of_attention, notation=heads.WHOLE),
    "shape in Section 3.2": Checks(row_agrees(), correction=_mended_lines, notation=heads.WHOLE),
    "caption in Appendix A": Checks(row_agrees(), (_for_its_transpose,), _mended_lines, heads.WHOLE),
    "order in Appendix A": Checks(row_agrees(), notation=heads.ONE),
    "order of factors": Checks(
        row_agrees(), correction=every(row_agrees(), independent(order_of_transposed)), notation=heads.WHOLE
    ),
    "10": Checks(_matrix_of_attention, notation=heads.WHOLE),
    "35": Checks(_scores, notation=heads.ATTENTION),
    "covariance": Checks(_covariance, (_gram,), _gram, heads.ATTENTION),
}
