"""Decide the claims about attention as a matrix: Eq. 7–10 and 35, and Appendices A and C."""

from functools import cache, partial

from sympy import ImmutableMatrix, Integer, Rational, Symbol

from symbolic.audit import density, heads
from symbolic.audit.bold import bold
from symbolic.audit.checks import both, chain, derived, every, expect, independent, row_agrees
from symbolic.audit.claim import DEFINED, Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.heads import HEADS, M, N
from symbolic.audit.held_attention import attention_moves, held_pattern
from symbolic.audit.letters import applied
from symbolic.equality.definition import Definition
from symbolic.evaluation.interpreter import Interpreter, exact
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter
from symbolic.vectorisation.attention import attention, pattern_derivation
from symbolic.vectorisation.entries import entries, same


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


_HEADS = r"\hat{\mathbf{H}}'"

_QK = bold(r"\frac{x_{i}W_{Qi}(x_{i}W_{Ki})^{T}}{\sqrt{M}}")


def _softmax(scores: str) -> str:
    return rf"\operatorname{{softmax}}\left(\frac{{{scores}}}{{\sqrt{{M}}}}\right)"


_W_QK = r"\mathbf{x}_{i}\mathbf{W}_{QKi}\mathbf{x}_{i}^{T}"


_claim = partial(Claim, notation=heads.WHOLE)

CLAIMS = (
    Claim(
        "7",
        r"\mathring{\mathbf{H}}=\operatorname{MultiHead}(\mathbf{Q},\mathbf{K},\mathbf{V})"
        r"=\operatorname{Concat}(\hat{\mathbf{H}}_{1},\ldots,\hat{\mathbf{H}}_{h})\mathbf{W}_{O}=\hat{\mathbf{H}}\mathbf{W}_{O}",
        _concatenation,
        notation=heads.heads_side_by_side(),
        kind=DEFINED,
        remark="Side by side is a sum: Ĥ W_O = Σ Ĥ_k S_k^T W_O, with Ĥ_k of N × M/h.",
    ),
    Claim(
        "8",
        r"\begin{aligned}\operatorname{Attention}"
        + bold(r"(x_{i}W_{Qi}=Q_{i},x_{i}W_{Ki}=K_{i},x_{i}W_{Vi}=V_{i})")
        + rf"&={_softmax(bold('Q_{i}K_{i}^{T}'))}"
        + bold(r"V_{i}=H_{i}V_{i}\\&=H_{i}[x_{i}W_{Vi}]=")
        + r"\hat{\mathbf{H}}_{i}\end{aligned}",
        _attention_is_formed,
        notation=heads.ATTENTION,
        kind=DEFINED,
        remark="The papers' own variant: heads see slices of the features, and scores are divided by the root"
        " of M, where others take the head's width. Only H changes with that.",
    ),
    _claim(
        "9",
        r"\mathring{\mathbf{H}}'=" + bold(r"(W'_{HVO})^{T}x'"),
        _matrix_of_attention,
        remark="(W'_{HVO})^T = Σ H_k ⊗ (S_k W_{V,k} S_k^T W_O)^T, which the paper leaves out; it changes with the"
        " input through H_k.",
    ),
    _claim(
        "shape in Section 3.2",
        bold(r"(W'_{HV})^{T}x'=") + rf"({_HEADS})^{{T}}",
        row_agrees(),
        remark="A column on the left and a row on the right; the caption of Figure 5 prints it without that T.",
        correct=((rf"({_HEADS})^{{T}}", _HEADS),),
        correction=_mended_lines,
    ),
    _claim(
        "caption in Appendix A",
        bold("W'_{HV}x'=") + _HEADS,
        row_agrees(),
        readings={"W'_{HV} stands for its transpose, as Section 3.1 does it with W'_i": _for_its_transpose},
        remark="The text beside it and the caption of Figure 5 have the T.",
        correct=((bold("W'_{HV}x'"), bold("(W'_{HV})^{T}x'")),),
        correction=_mended_lines,
    ),
    Claim(
        "order in Appendix A",
        bold(r"[H'_{i}W'_{Vi}]^{T}x'_{i}=(H'_{i})^{T}[(W'_{Vi})^{T}x'_{i}]"),
        row_agrees(),
        notation=heads.ONE,
        remark="It looks like a wrong order, and holds: H ⊗ I and I ⊗ W_V^T commute. One bracket is printed too many.",
    ),
    _claim(
        "order of factors",
        bold(r"W'_{HVO}=W'_{O}W'_{HV}"),
        row_agrees(),
        remark="With (W'_{HV})^T x' and (W'_O)^T Ĥ' in the same sentence the order is the other one, as version 001"
        " has it; for the matrices without the T, the order is as printed.",
        correct=((bold("W'_{O}W'_{HV}"), bold("W'_{HV}W'_{O}")),),
        correction=every(row_agrees(), independent(order_of_transposed)),
    ),
    *density.CLAIMS,
    _claim(
        "10",
        r"\mathring{\mathbf{H}}'=" + bold("W'x'"),
        _matrix_of_attention,
        remark="Eq. 9 with W' for (W'_{HVO})^T.",
    ),
    Claim(
        "35",
        rf"\mathbf{{H}}_{{i}}=\operatorname{{softmax}}\left({_QK}\right)="
        + _softmax(bold("x_{i}W_{Qi}W_{Ki}^{T}x_{i}^{T}"))
        + f"={_softmax(_W_QK)}",
        _scores,
        notation=heads.ATTENTION,
        remark="With W_{QK} = W_Q W_K^T; one bracket is printed too many.",
    ),
    Claim(
        "covariance",
        r"\text{these parameters are learned elements of the covariance matrix of the input}",
        _covariance,
        notation=heads.ATTENTION,
        readings={
            "'covariance' means a Gram form: products of tokens with one another, x W_{QK} x^T, neither centred nor"
            " averaged": _gram
        },
        correct=rf"\mathbf{{H}}_{{i}}={_softmax(_W_QK)}",
        correction=_gram,
    ),
)
