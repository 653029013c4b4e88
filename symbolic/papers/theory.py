"""Universal approximation, pruning and LoRA: Eq. 1, 2, 4 and 13–19."""

from sympy import Abs, MatrixExpr, Symbol, ZeroMatrix, symbols

from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal, normal_form
from symbolic.expressions.activation import Activation
from symbolic.expressions.matrix import MatrixSum
from symbolic.expressions.parameter import Parameter
from symbolic.papers.checks import adds, at_depths, derived, scalar
from symbolic.papers.claim import Claim
from symbolic.papers.counterexample import Outcome, identity
from symbolic.theorems.closed_form import prove
from symbolic.theorems.lemma import lemma_1
from symbolic.theorems.lora import AdaptedStack, delta, lora
from symbolic.theorems.pruning import holds_for_all_signs, pruning, split_of_sums
from symbolic.theorems.residual_stack import ResidualStack


def _sum_is_formed() -> Outcome:
    n, m, k = symbols("n m k", integer=True, positive=True)
    alpha, weight, bias = Parameter("alpha", (1,), k, m), Parameter("W", (1,), n, m), Parameter("b", (1,), m, 1)
    total = alpha * Activation(weight.T * Parameter("x", (), n, 1) + bias)
    return Outcome(total.shape == (k, 1), "well formed: W_j of n × m, b_j of m and α_j of k × m give a k-vector")


def cited() -> Outcome:
    """Return that a claim is a theorem of others, which isn't proved here."""
    return Outcome(True, "cited, not proved here (Cybenko 1989, Theorem 2)")


def _split() -> Outcome:
    return Outcome(split_of_sums(), "a sum is the sum over both sets, for every split of 5 terms")


def _other_bias() -> Outcome:
    """One term in each set, b = (1, 0), θ = (3, 0), f = 1, W = 0, α = 1, σ = ReLU."""
    premise, kept, dropped = abs(1 + 0 - 1), abs(3 - 1), abs(0)
    return Outcome(
        abs(kept - dropped) <= premise,
        "counterexample with θ_j other than b_j, σ = ReLU, W = 0, α = 1, b = (1, 0), θ = (3, 0), f = 1: the"
        " left side of Eq. 14"
        f" is {premise}, that of Eq. 15 is {abs(kept - dropped)}",
    )


def reverse_triangle() -> Outcome:
    """Decide `||a| − |b|| ≤ |a + b|` by the signs."""
    a, b = symbols("a b", real=True)
    good = holds_for_all_signs((a + b) ** 2 - (Abs(a) - Abs(b)) ** 2, a, b)
    return Outcome(good, "||a| − |b|| ≤ |a + b| with a = S_1 − f and b = S_2, proved by the signs")


def pruning_bound() -> Outcome:
    """Decide the pruning inequality."""
    return derived(pruning(), "the pruning inequality")


def small_share() -> Outcome:
    """Decide whether a term whose share of the output is zero can be removed from the network, which is run again."""
    s = ResidualStack()
    values = {s.W(1, 1): 1, s.W(1, 2): 1, s.W(1, 3): 1, s.b(1, 2): 0, s.b(1, 3): 0, s.x(0): 1}
    values |= {s.W(2, 1): 0, s.W(2, 2): 1, s.W(2, 3): 1, s.b(2, 2): 0, s.b(2, 3): 0}
    term = s.W(1, 3) * Activation(s.W(1, 2) * s.x(0) + s.b(1, 2))
    own = scalar(s.W(2, 1) * term, values, s)
    whole = scalar(s.general_term(2, s.general_term(1)), values, s)
    without = scalar(s.general_term(2, s.W(1, 1) * s.x(0) + s.b(1, 3)), values, s)
    return Outcome(
        abs(whole - without) <= abs(own),
        "counterexample, σ = ReLU, all sizes 1, W'_{2,1} = 0, all other matrices and x'_0 = 1, biases 0: layer 1's"
        " own term is"
        f" {own} at the output {whole}; without it the network, run again, gives {without}",
    )


def _small_parameters() -> Outcome:
    """With `W'_{1,3} = 0` the network without layer 1's term is the network; σ is continuous, so near it is near."""
    s = ResidualStack()
    zero = Definition(s.W(1, 3), ZeroMatrix(s.width, s.neurons))
    without = s.general_term(2, s.W(1, 1) * s.x(0) + s.b(1, 3))
    same = equal(s.x(2), without, (s.equation_20, zero))
    return Outcome(same, "at W'_{1,3} = 0 nothing changes, proved by the normal form, and σ is continuous")


def _drop_held_terms() -> Outcome:
    return Outcome(
        pruning().steps[4].verified, "with all else held the output changes by the dropped terms alone, proved"
    )


def _lora_is_linear() -> Outcome:
    d = Symbol("d", integer=True, positive=True)
    weight, x = Parameter("W", (0,), d, d), Parameter("x", (), d, 1)
    return identity((weight + delta(weight)) * x, weight * x + delta(weight) * x)


def _eq_18(depth: int, shift: int) -> tuple[MatrixExpr, list[MatrixExpr], list[MatrixExpr]]:
    """Return the head of Eq. 18, the factors before its activations, and the activations."""
    s = ResidualStack()
    layers = range(1, depth + 1)
    outer = [s.C(j, depth) + delta(s.W(j + shift, 3)) for j in layers]
    inner = [Activation((s.B(j) + delta(s.W(j + shift, 2))) * s.x(0) + s.c(j)) for j in layers]
    return s.P(depth) * s.x(0) + s.q(depth), outer, inner


def _eq_18_printed() -> Outcome:
    head, outer, inner = _eq_18(1, shift=1)
    return adds(head, *outer, *inner)


def _eq_18_as_product(shift: int) -> Outcome:
    """Compare Eq. 18, its second + read as a product, with a network whose MLPs have adapters."""
    s, adapted = ResidualStack(), AdaptedStack()

    def at(depth: int) -> Outcome:
        head, outer, inner = _eq_18(depth, shift)
        form = MatrixSum(head, *(c * a for c, a in zip(outer, inner, strict=True)))
        return identity(adapted.x(depth), form, (adapted.equation_20, *_only_mlp(depth), *s.recursions))

    return at_depths(at, (1, 2))


def lora_in_all_layers() -> Outcome:
    """Decide LoRA in all three matrices of every layer."""
    return derived(lora(depth=4), "recursions with W' + ΔW' against the adapted network at depth 4")


def _only_mlp(depth: int) -> tuple[Definition, ...]:
    s = ResidualStack()
    return tuple(Definition(delta(s.W(k, 1)), ZeroMatrix(s.width, s.width)) for k in range(1, depth + 1))


def _lora_in_mlps() -> Outcome:
    """The adapted form at depth 4 with adapters in the MLPs only: the linear path is the plain one."""
    s, adapted, zero = ResidualStack(), AdaptedStack(), _only_mlp(4)
    path = s.P(4) * s.x(0) + s.q(4)
    plain = normal_form(path, s.recursions) == normal_form(path, (*zero, *adapted.recursions))
    whole = normal_form(s.form(4), (*zero, *adapted.recursions)) == normal_form(s.x(4), (*zero, adapted.equation_20))
    return Outcome(
        plain and whole, "P and q unchanged, C, B and c with W' + ΔW', against the adapted network at depth 4, proved"
    )


def _theorem_with_adapters() -> Outcome:
    return derived(prove(AdaptedStack()), "the closed form at every depth, with W'_{j,k} + ΔW'_{j,k} for W'_{j,k}")


def _layer_by_layer() -> Outcome:
    s, adapted = ResidualStack(), AdaptedStack()
    only_first = normal_form(
        s.c(2), (Definition(delta(s.W(2, 2)), ZeroMatrix(s.neurons, s.width)), *adapted.recursions)
    )
    moved = only_first != normal_form(s.c(2), s.recursions)
    return Outcome(
        not moved, "with an adapter in layer 1 alone, c_2, the bias inside layer 2's activation, is another one"
    )


_G = r"\sum_{j=1}^{N}\alpha_{j}\sigma\left(\mathbf{W}_{j}^{\mathrm{T}}\mathbf{x}+b_{j}\right)"

_THETA = r"\theta"


def _partial(k: int, bias: str) -> str:
    argument = rf"\mathbf{{W}}_{{j}}^{{\mathrm{{T}}}}\mathbf{{x}}+{bias}_{{j}}"
    return rf"\sum_{{j\in\Lambda_{{{k}}}}}\alpha_{{j}}\sigma\left({argument}\right)"


CLAIMS = (
    Claim(
        "1",
        "000",
        rf"G(\mathbf{{x}})={_G}",
        _sum_is_formed,
        definition=True,
        remark="That such sums are dense in C(I_n) is Cybenko's theorem, which is cited.",
    ),
    Claim(
        "2",
        "000",
        r"|G(\mathbf{x})-f(\mathbf{x})|<\varepsilon",
        cited,
        remark="Cybenko's theorem, for continuous sigmoidal σ; it is cited, not proved here. One G serves all x ∈"
        " I_n, as versions"
        " 001 and 003 print it.",
    ),
    Claim(
        "4",
        "000",
        r"\mathbf{y}_{i}=G(\mathbf{x}_{i}|\mathbf{W}(\mathbf{x}_{i}),\mathbf{b}(\mathbf{x}_{i}))",
        _sum_is_formed,
        definition=True,
        remark="Eq. 1 with parameters that depend on the input. By itself it says little, since b(x) alone can carry"
        " much; its"
        " content is Eq. 20–34, which say which parameters move and how.",
    ),
    Claim(
        "13",
        "000",
        rf"\left|{_G}-f(\mathbf{{x}})\right|<\varepsilon",
        _sum_is_formed,
        definition=True,
        remark="It is the assumption of the pruning argument.",
    ),
    Claim(
        "14",
        "000",
        rf"\left|{_partial(1, 'b')}+{_partial(2, 'b')}-f(\mathbf{{x}})\right|<\varepsilon",
        _split,
        remark="Eq. 13 with its sum split in two.",
    ),
    Claim(
        "15",
        "000",
        rf"\left|\left|{_partial(1, _THETA)}-f(\mathbf{{x}})\right|"
        rf"-\left|{_partial(2, _THETA)}\right|\right|<\varepsilon",
        _other_bias,
        (("θ_j is the b_j of Eq. 14", reverse_triangle),),
        remark="The limit S_2 → 0 isn't needed.",
        corrected=rf"\left|\left|{_partial(1, 'b')}-f(\mathbf{{x}})\right|-\left|{_partial(2, 'b')}\right|"
        rf"\right|<\varepsilon",
        correction=pruning_bound,
    ),
    Claim(
        "16",
        "000",
        rf"\left|{_partial(1, 'b')}-f(\mathbf{{x}})\right|<\varepsilon+\left|{_partial(2, 'b')}\right|",
        pruning_bound,
        remark="It follows from Eq. 13 alone, without the limit S_2 → 0.",
    ),
    Claim(
        "pruning of layers",
        "000",
        r"\text{when parameters in certain layers are small enough, we can directly remove those layers}",
        _small_parameters,
        remark="By continuity, without a rate; the inequality above it bounds the held form only.",
    ),
    Claim(
        "small share of the output",
        "000",
        r"\left|\sum_{j\in\Lambda_{2}}\alpha_{j}\sigma\left(\mathbf{W}_{j}^{\mathrm{T}}\mathbf{x}+\theta_{j}\right)"
        r"\right|\to 0"
        r"\text{: their impact on the final result is minimal}",
        small_share,
        (("terms of the closed form are removed, with all else held", _drop_held_terms),),
        remark="In a network of several layers, run again, later terms move too, and a small share doesn't bound that.",
        corrected=r"\mathbf{x}'_{2}-\widetilde{\mathbf{x}}'_{2}=\mathbf{C}_{1}^{(2)}\mathbf{s}_{1}"
        r"+\mathbf{W}'_{2,3}\left(\sigma(\mathbf{z}_{2})-\sigma(\mathbf{z}_{2}-\mathbf{W}'_{2,2}\mathbf{W}'_{1,3}\mathbf{s}_{1})\right)",
        correction=pruning_bound,
    ),
    Claim(
        "17",
        "000",
        r"\mathbf{h}=\mathbf{W}_{0}\mathbf{x}+\Delta\mathbf{W}\mathbf{x}",
        _lora_is_linear,
        definition=True,
        remark="ΔW is a product of two matrices of low rank.",
    ),
    Claim(
        "18",
        "000",
        r"\mathbf{x}_{i+1}=(\mathbf{W}_{i+1,1}^{\prime}\mathbf{x}_{0}+\mathbf{b}_{i+1,1})"
        r"+\sum_{j=1}^{i+1}(\mathbf{W}^{\prime}_{j,3}+\Delta\mathbf{W}_{j+1,3})"
        r"+\sigma((\mathbf{W}^{\prime}_{j,2}+\Delta\mathbf{W}_{j+1,2})\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{j,2})",
        _eq_18_printed,
        (
            ("the second + read as a product", lambda: _eq_18_as_product(1)),
            ("besides, ΔW_{j,2} and ΔW_{j,3} for ΔW_{j+1,2} and ΔW_{j+1,3}", lambda: _eq_18_as_product(0)),
        ),
        remark="Two misprints, + for a product and j + 1 for j; and with both mended, b'_{j,2} and the carried ΔW'"
        " have to be read as"
        " updated, as in Eq. 11: then it is exact.",
        corrected=r"\mathbf{x}_{i+1}=\mathbf{P}_{i+1}\mathbf{x}_{0}+\mathbf{q}_{i+1}"
        r"+\sum_{j=1}^{i+1}(\mathbf{C}_{j}^{(i+1)}+\Delta\mathbf{C}_{j}^{(i+1)})"
        r"\sigma\left((\mathbf{B}_{j}+\Delta\mathbf{B}_{j})\mathbf{x}_{0}+\mathbf{c}_{j}+\Delta\mathbf{c}_{j}\right)",
        correction=_lora_in_mlps,
    ),
    Claim(
        "LoRA layer by layer",
        "000",
        r"\text{LoRA essentially fine-tunes the DUAT parameters layer by layer}",
        _layer_by_layer,
        (("each layer's own parameters W'_{j,k}, not those of the closed form", _theorem_with_adapters),),
        remark="In the closed form an adapter also moves the terms of all later layers.",
        corrected=r"\Delta\mathbf{c}_{i+1}=\Delta\mathbf{W}'_{i+1,2}(\mathbf{q}_{i}+\mathrm{UAT}^{R}_{i})"
        r"+(\mathbf{W}'_{i+1,2}+\Delta\mathbf{W}'_{i+1,2})(\Delta\mathbf{q}_{i}+\Delta\mathrm{UAT}^{R}_{i})",
        correction=lora_in_all_layers,
    ),
    Claim(
        "19",
        "000",
        r"G(\mathbf{x})=\mathbf{\beta}\sum_{j=1}^{N}\mathbf{\alpha}_{j}\sigma\left(\mathbf{W}_{j}^{\mathrm{T}}\mathbf{x}+\mathbf{b}_{j}\right)"
        r"=\sum_{j=1}^{N}\mathbf{\beta}\mathbf{\alpha}_{j}\sigma\left(\mathbf{W}_{j}^{\mathrm{T}}\mathbf{x}+\mathbf{b}_{j}\right)",
        lambda: derived(lemma_1(), "Lemma 1"),
    ),
)
