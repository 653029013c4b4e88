"""The matrix-vector method: Eq. 3, 5–10 and 35, and what is said of density."""

from fractions import Fraction

from sympy import Expr, Identity, ImmutableMatrix, Rational, Transpose, exp, log, sqrt, symbols

from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.kronecker import Kronecker
from symbolic.expressions.parameter import Parameter
from symbolic.papers.checks import adds, chain, derived
from symbolic.papers.claim import Claim
from symbolic.papers.counterexample import Outcome, identity
from symbolic.vectorisation.attention import attention, attention_derivation, pattern
from symbolic.vectorisation.entries import density, kronecker
from symbolic.vectorisation.linear import linear_derivation, linear_on_features, linear_on_rows
from symbolic.vectorisation.mlp import mlp_derivation

_SMALL = ((1, 2, 1), (2, 2, 1), (2, 2, 2), (3, 2, 2), (2, 4, 2))  # tokens, features, heads


def _linear_has_matrix() -> Outcome:
    good = all(f(n, m).agree for f in (linear_on_rows, linear_on_features) for n, m, _ in _SMALL)
    return Outcome(good, "well formed: W' read off entry by entry for both linear orientations")


def pattern_moves() -> Outcome:
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


def attention_is_a_matrix() -> Outcome:
    """Decide that attention is a matrix times `x'`, and say that the matrix moves with `x'`."""
    held, moves = held_pattern(), pattern_moves()
    return Outcome(held.holds, f"with the pattern held, {held.how}; the matrix moves with x: {moves.how}")


def held_pattern() -> Outcome:
    """Decide that attention is one matrix once its pattern is held."""
    return derived(attention_derivation(), "attention as one Kronecker sum")


def _mixes_tokens() -> Outcome:
    rows, features = linear_on_rows(2, 2).matrix, linear_on_features(2, 2).matrix
    crossing = [any(m[r, c] != 0 for r in (0, 1) for c in (2, 3)) for m in (rows, features)]
    return Outcome(
        crossing[0] == crossing[1],
        f"with W of N × N, token 1 of W x contains {rows[0, 2]} times token 2; a Transformer's MLP acts on each"
        " token alone",
    )


def _concatenation() -> Outcome:
    n, m, h = symbols("N M h", integer=True, positive=True)
    k = symbols("k", integer=True, nonnegative=True)
    head, place, w_o = Parameter("H^", (k,), n, m), Parameter("S", (k,), m, m), Parameter("W", ("O",), m, m)
    joined = IndexedSum(head * place.T, k, 1, h) * w_o
    return identity(joined, IndexedSum(head * (place.T * w_o), k, 1, h))


def _attention_is_formed() -> Outcome:
    n, size = symbols("N m", integer=True, positive=True)
    x = Parameter("x", (1,), n, size)
    q, k, v = (Parameter("W", (name, 1), size, size) for name in "QKV")
    scores = x * q * Transpose(x * k)
    return Outcome(
        scores.shape == (n, n) and (Parameter("H", (1,), n, n) * x * v).shape == (n, size),
        "well formed: x_i of N × M/h gives scores of N × N and heads of N × M/h",
    )


def _product(entry: Expr) -> str:
    return str(entry).replace("*", " ")


def _order_as_printed() -> Outcome:
    """With the three matrices applied transposed, as Eq. 9 and the lines before it print them."""
    small = attention(2, 2, 2)
    w_hv, w_o = small.value.matrix.T, small.output.matrix.T
    printed, needed = (w_o * w_hv).T, small.whole.matrix
    place = next(((r, c) for r in range(4) for c in range(4) if (printed - needed).expand()[r, c] != 0), None)
    if place is None:
        return Outcome(True, "equal entry by entry")
    r, c = place
    return Outcome(
        False,
        f"entry ({r + 1}, {c + 1}) for N = M = h = 2: the printed order gives {_product(printed.expand()[r, c])},"
        f" attention needs {_product(needed[r, c])}",
    )


def order_of_transposed() -> Outcome:
    """Decide `W'_{HVO} = W'_{HV} W'_O` for the matrices that are applied transposed."""
    p = symbols("p", integer=True, positive=True)
    hv, o, x = Parameter("W'", ("HV",), p, p), Parameter("W'", ("O",), p, p), Parameter("x'", (), p, 1)
    symbolic = identity(Transpose(hv * o) * x, o.T * (hv.T * x))
    good = all(
        ((a.value.matrix.T * a.output.matrix.T).T - a.whole.matrix).expand().is_zero_matrix
        for a in (attention(*size) for size in _SMALL)
    )
    return Outcome(symbolic.holds and good, f"{symbolic.how}, for all sizes; and entry by entry at {len(_SMALL)} sizes")


def _transposed_vector() -> Outcome:
    p = symbols("p", integer=True, positive=True)
    hv, x, hat = Parameter("W'", ("HV",), p, p), Parameter("x'", (), p, 1), Parameter("H^", (), p, 1)
    return adds(hv.T * x, hat.T)


def _pattern_and_value_commute() -> Outcome:
    """`[H' W'_V]^T x' = H'^T [W'_V^T x']` with `H' = H^T ⊗ I` and `W'_V = I ⊗ W_V`, as the papers transpose them."""
    n, m = symbols("N M", integer=True, positive=True)
    held, value = Kronecker(Parameter("H", (), n, n).T, Identity(m)), Kronecker(Identity(n), Parameter("V", (), m, m))
    x = Parameter("x'", (), n * m, 1)
    return identity(Transpose(held * value) * x, held.T * (value.T * x))


def _dense_if_nonzero() -> Outcome:
    """No variable is zero, and W_V W_O is: two features, one head."""
    held = ImmutableMatrix([[Rational(1, 2)] * 2] * 2)
    w_v, w_o = ImmutableMatrix([[1, 1], [1, 1]]), ImmutableMatrix([[1, 1], [-1, -1]])
    whole = kronecker(held, (w_v * w_o).T)
    return Outcome(
        density(whole) == 1,
        "counterexample, N = M = 2, one head, all entries of H 1/2, W_V = [[1, 1], [1, 1]], W_O = [[1, 1], [-1,"
        " -1]]: no variable is"
        f" zero and W'_{{HVO}} has density {density(whole)}",
    )


def _generic_density() -> Outcome:
    free = [attention(*size).whole.density for size in _SMALL]
    return Outcome(
        set(free) == {Fraction(1)}, f"every entry is a polynomial other than 0, at {len(_SMALL)} sizes: density 1"
    )


def _causal_density() -> Outcome:
    found = {n: attention(n, 2, 1, causal=True).whole.density for n in (2, 3, 4)}
    return Outcome(
        set(found.values()) == {Fraction(1)},
        "with a causal mask the density is "
        + ", ".join(f"{d} at N = {n}" for n, d in found.items())
        + ": (N + 1)/(2 N)",
    )


def _whole_context() -> Outcome:
    dense, causal = _generic_density(), _causal_density()
    return Outcome(dense.holds and not causal.holds, f"{dense.how}; {causal.how}")


def _head_is_dense() -> Outcome:
    sizes = ((2, 2), (3, 2), (2, 3))
    good = all(attention(n, m, 1).value.density == 1 for n, m in sizes)
    whole = attention(2, 4, 2).value.density
    return Outcome(
        good,
        "for one head every entry is a product of variables; for all heads together the density is 1/h"
        f" ({whole} at h = 2)",
    )


def _scores() -> Outcome:
    n, m = symbols("N M", integer=True, positive=True)
    x, q, k = Parameter("x", (), n, m), Parameter("W", ("Q",), m, m), Parameter("W", ("K",), m, m)
    outcome = chain(x * q * Transpose(x * k), [x * q * k.T * x.T, x * (q * k.T) * x.T])
    rows = pattern(2, 2)
    sums = all(sum(rows[n, :]).together() == 1 for n in range(2))
    return Outcome(outcome.holds and sums, outcome.how + "; rows of H sum to one, entry by entry")


CLAIMS = (
    Claim(
        "3",
        "000",
        r"\mathbf{y}=T(\mathbf{x}|\mathbf{W})\mapsto\mathbf{y}^{\prime}=\mathbf{W}^{\prime}\mathbf{x}^{\prime}",
        _linear_has_matrix,
        definition=True,
        remark="For a T that isn't linear, W' depends on x.",
    ),
    Claim(
        "5",
        "000",
        r"\mathbf{x}_{i+1}=\mathbf{W}_{i}\mathbf{x}_{i}\mapsto\mathbf{x}_{i+1}^{\prime}=\mathbf{W}^{\prime}_{i}\mathbf{x}^{\prime}_{i}",
        lambda: derived(linear_derivation(2, 3), "W' = W ⊗ I_M for all sizes, and entry by entry"),
    ),
    Claim(
        "6",
        "000",
        r"FFN(\mathbf{x})=\mathbf{W}_{2}\sigma(\mathbf{W}_{1}\mathbf{x}+\mathbf{b}_{1})+\mathbf{b}_{2}"
        r"\mapsto\mathbf{W}_{2}^{\prime}\sigma(\mathbf{W}_{1}^{\prime}\mathbf{x}^{\prime}+\mathbf{b}_{1}^{\prime})+\mathbf{b}_{2}^{\prime}",
        _mixes_tokens,
        (
            (
                "W x stands for the map of every token's features, x W_1 with W' = I_N ⊗ W^T",
                lambda: derived(mlp_derivation(), "the matrix-vector form of the MLP in both orientations"),
            ),
        ),
        remark="The mapping to primed symbols is right in both orientations.",
        corrected=r"FFN(\mathbf{x})=\sigma(\mathbf{x}\mathbf{W}_{1}+\mathbf{1}\mathbf{b}_{1}^{T})\mathbf{W}_{2}+\mathbf{1}\mathbf{b}_{2}^{T},"
        r"\quad\mathbf{W}'_{k}=\mathbf{I}_{N}\otimes\mathbf{W}_{k}^{T}",
        correction=lambda: derived(mlp_derivation(), "the same derivation"),
    ),
    Claim(
        "7",
        "000",
        r"\mathring{\mathbf{H}}=\operatorname{MultiHead}(\mathbf{Q},\mathbf{K},\mathbf{V})"
        r"=\operatorname{Concat}(\hat{\mathbf{H}}_{1},\ldots,\hat{\mathbf{H}}_{h})\mathbf{W}_{O}=\hat{\mathbf{H}}\mathbf{W}_{O}",
        _concatenation,
        definition=True,
        remark="Side by side is a sum: Ĥ W_O = Σ Ĥ_k S_k^T W_O.",
    ),
    Claim(
        "8",
        "000",
        r"\operatorname{Attention}(\mathbf{x}_{i}\mathbf{W}_{Qi}=\mathbf{Q}_{i},\mathbf{x}_{i}\mathbf{W}_{Ki}=\mathbf{K}_{i},"
        r"\mathbf{x}_{i}\mathbf{W}_{Vi}=\mathbf{V}_{i})=\operatorname{softmax}\left(\frac{\mathbf{Q}_{i}\mathbf{K}_{i}^{T}}{\sqrt{M}}\right)"
        r"\mathbf{V}_{i}=\mathbf{H}_{i}\mathbf{V}_{i}=\mathbf{H}_{i}[\mathbf{x}_{i}\mathbf{W}_{Vi}]=\hat{\mathbf{H}}_{i}",
        _attention_is_formed,
        definition=True,
        remark="The papers' own variant: heads see slices of the features, and scores are divided by the root"
        " of M, where others take the"
        " head's width. Only H changes with that.",
    ),
    Claim(
        "9",
        "000",
        r"\mathring{\mathbf{H}}^{\prime}=(\mathbf{W}_{HVO}^{\prime})^{T}\mathbf{x}^{\prime}",
        attention_is_a_matrix,
        remark="(W'_{HVO})^T = Σ H_k ⊗ (S_k W_{V,k} S_k^T W_O)^T, which the paper leaves out; it moves with the"
        " input through H_k.",
    ),
    Claim(
        "shape in Section 3.2",
        "000",
        r"(\mathbf{W}_{HV}^{\prime})^{T}\mathbf{x}^{\prime}=(\hat{\mathbf{H}}^{\prime})^{T}",
        _transposed_vector,
        remark="A column on the left and a row on the right; the caption of Figure 5 prints it without the T.",
        corrected=r"(\mathbf{W}_{HV}^{\prime})^{T}\mathbf{x}^{\prime}=\hat{\mathbf{H}}^{\prime}",
        correction=held_pattern,
    ),
    Claim(
        "order in Appendix A",
        "000",
        r"[\mathbf{H}_{i}^{\prime}\mathbf{W}_{Vi}^{\prime}]^{T}\mathbf{x}_{i}^{\prime}"
        r"=(\mathbf{H}_{i}^{\prime})^{T}[(\mathbf{W}_{Vi}^{\prime})^{T}\mathbf{x}_{i}^{\prime}]",
        _pattern_and_value_commute,
        remark="It looks like a wrong order, and holds: H ⊗ I and I ⊗ W_V^T commute.",
    ),
    Claim(
        "order of factors",
        "000",
        r"\mathbf{W}_{HVO}^{\prime}=\mathbf{W}_{O}^{\prime}\mathbf{W}_{HV}^{\prime}",
        _order_as_printed,
        remark="With (W'_{HV})^T x' and (W'_O)^T Ĥ' in the same sentence the order is the other one, as version 001"
        " has it; for the"
        " matrices without the T, the order is as printed.",
        corrected=r"\mathbf{W}_{HVO}^{\prime}=\mathbf{W}_{HV}^{\prime}\mathbf{W}_{O}^{\prime}",
        correction=order_of_transposed,
    ),
    Claim(
        "dense matrix",
        "000",
        r"\text{as long as the variables in }\mathbf{W}_{HV}\text{ and }\mathbf{W}_{O}^{\prime}"
        r"\text{ are non-zero, the result is essentially a dense matrix}",
        _dense_if_nonzero,
        (("'essentially': for all but special values, and without a mask", _generic_density),),
        remark="With a causal mask (N + 1)/(2 N) of the entries remain.",
        corrected=r"\text{density }1\text{ for generic values without a mask, }\tfrac{N+1}{2N}"
        r"\text{ with a causal one}",
        correction=_generic_density,
    ),
    Claim(
        "dense head",
        "000",
        r"\text{It can be observed that }\mathbf{W}_{HVi}^{\prime}\text{ is a dense matrix}",
        _head_is_dense,
        remark="For generic values and without a mask; versions 001 and 003 say the same.",
    ),
    Claim(
        "whole context",
        "000",
        r"\text{each element in }\mathring{\mathbf{H}}\text{ encapsulates comprehensive information from both}"
        r"\text{ preceding and subsequent contexts}",
        _whole_context,
        remark="So it is in Eq. 8, which has no mask. A model that predicts the next token has a causal mask, and"
        " sees preceding"
        " tokens only.",
    ),
    Claim(
        "10",
        "000",
        r"\mathring{\mathbf{H}}^{\prime}=\mathbf{W}^{\prime}\mathbf{x}^{\prime}",
        attention_is_a_matrix,
        remark="Eq. 9 with W' for (W'_{HVO})^T.",
    ),
    Claim(
        "35",
        "000",
        r"\mathbf{H}_{i}=\operatorname{softmax}\left(\frac{\mathbf{x}_{i}\mathbf{W}_{Qi}(\mathbf{x}_{i}\mathbf{W}_{Ki})^{T}}{\sqrt{M}}\right)"
        r"=\operatorname{softmax}\left(\frac{\mathbf{x}_{i}\mathbf{W}_{Qi}\mathbf{W}_{Ki}^{T}\mathbf{x}_{i}^{T}}{\sqrt{M}}\right)"
        r"=\operatorname{softmax}\left(\frac{\mathbf{x}_{i}\mathbf{W}_{QKi}\mathbf{x}_{i}^{T}}{\sqrt{M}}\right)",
        _scores,
        remark="With W_{QK} = W_Q W_K^T; one bracket is printed too many.",
    ),
)
