"""The matrix-vector method: Eq. 3, 5–10 and 35, and what is said of density."""

from fractions import Fraction

from sympy import Expr, ImmutableMatrix, Rational, Transpose, exp, log, sqrt, symbols

from symbolic.explicit import density, kronecker
from symbolic.matrix_vector import (
    attention,
    attention_derivation,
    linear_derivation,
    linear_on_features,
    linear_on_rows,
    mlp_derivation,
    pattern,
)
from symbolic.operations import IndexedSum
from symbolic.paper.checks import chain, derived
from symbolic.paper.claims import Claim
from symbolic.paper.counterexample import Outcome, identity
from symbolic.symbols import Parameter

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
        "counterexample, one head, all weights 1, tokens 0 and t with exp(t²) = 2: MHA(2x) is"
        f" {twice} t and 2 MHA(x) is {once} t at token 2, so no matrix gives MHA",
    )


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
    k = symbols("k", integer=True)
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


def _order_of_untransposed() -> Outcome:
    good = all(
        (a.output.matrix * a.value.matrix - a.whole.matrix).expand().is_zero_matrix
        for a in (attention(*size) for size in _SMALL)
    )
    return Outcome(good, f"W'_O W'_{{HV}} = W'_{{HVO}} entry by entry at {len(_SMALL)} sizes")


def order_of_transposed() -> Outcome:
    """Decide `W'_{HVO} = W'_{HV} W'_O` for the matrices that are applied transposed."""
    good = all(
        ((a.value.matrix.T * a.output.matrix.T).T - a.whole.matrix).expand().is_zero_matrix
        for a in (attention(*size) for size in _SMALL)
    )
    return Outcome(good, f"entry by entry at {len(_SMALL)} sizes, and by the normal form for all sizes")


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
        pattern_moves,
        (("with the patterns H_i held at their values on this input", held_pattern),),
        corrected=r"(\mathbf{W}_{HVO}^{\prime})^{T}=\sum_{k=1}^{h}\mathbf{H}_{k}\otimes"
        r"\left(\mathbf{S}_{k}\mathbf{W}_{V,k}\mathbf{S}_{k}^{T}\mathbf{W}_{O}\right)^{T}"
        r",\quad\mathbf{H}_{k}\text{ held}",
        correction=held_pattern,
    ),
    Claim(
        "order of factors",
        "000",
        r"\mathbf{W}_{HVO}^{\prime}=\mathbf{W}_{O}^{\prime}\mathbf{W}_{HV}^{\prime}",
        _order_as_printed,
        (
            (
                "the primed matrices are the transposed ones, as the text after Eq. 5 lets W' stand for its transpose",
                _order_of_untransposed,
            ),
        ),
        remark="With (W'_{HV})^T x' and (W'_O)^T Ĥ' as printed around it the order is the other one, as version"
        " 001 has it.",
        corrected=r"\mathbf{W}_{HVO}^{\prime}=\mathbf{W}_{HV}^{\prime}\mathbf{W}_{O}^{\prime}",
        correction=order_of_transposed,
    ),
    Claim(
        "dense matrix",
        "000",
        r"\text{as long as the variables in }\mathbf{W}_{HV}^{\prime}\text{ and }\mathbf{W}_{O}^{\prime}"
        r"\text{ are non-zero, the result is essentially a dense matrix}",
        _dense_if_nonzero,
        (("'essentially': for all but special values, and without a mask", _generic_density),),
        remark="With a causal mask (N + 1)/(2 N) of the entries remain.",
        corrected=r"\text{density }1\text{ for generic values without a mask, }\tfrac{N+1}{2N}"
        r"\text{ with a causal one}",
        correction=_generic_density,
    ),
    Claim(
        "whole context",
        "000",
        r"\text{each element in }\mathring{\mathbf{H}}\text{ encapsulates comprehensive information from both"
        " preceding and subsequent contexts}",
        _causal_density,
        (("no causal mask", _generic_density),),
        remark="A language model that predicts the next token has a causal mask, and its tokens see preceding"
        " ones only.",
        corrected=r"\text{from preceding contexts, and from subsequent ones without a causal mask}",
        correction=_generic_density,
    ),
    Claim(
        "10",
        "000",
        r"\mathring{\mathbf{H}}^{\prime}=\mathbf{W}^{\prime}\mathbf{x}^{\prime}",
        pattern_moves,
        (("Eq. 9 with W' for (W'_{HVO})^T, the patterns held", held_pattern),),
        corrected=r"\mathbf{W}^{\prime}=\sum_{k=1}^{h}\mathbf{H}_{k}\otimes"
        r"\left(\mathbf{S}_{k}\mathbf{W}_{V,k}\mathbf{S}_{k}^{T}\mathbf{W}_{O}\right)^{T}"
        r",\quad\mathbf{H}_{k}\text{ held}",
        correction=held_pattern,
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
