"""What versions 001 and 003 state differently: diamond product, order of factors, density, closed form."""

from fractions import Fraction

from sympy import Identity, MatrixExpr, Transpose, symbols

from symbolic.algebra import Kronecker
from symbolic.diamond import column_sums, diamond, diamond_derivation
from symbolic.explicit import density, entries, same
from symbolic.induction import prove
from symbolic.matrix_vector import attention, linear_on_rows, pattern
from symbolic.operations import Activation, Vec
from symbolic.paper.attention import held_pattern, order_of_transposed, pattern_moves
from symbolic.paper.checks import derived
from symbolic.paper.claims import Claim
from symbolic.paper.counterexample import Outcome, identity
from symbolic.paper.residual import bias_two_indices, closed_form_proved, recursions_proved
from symbolic.paper.theory import cited, pruning_bound
from symbolic.stack import Stack, i
from symbolic.symbols import Parameter, Variable
from symbolic.transformer import parameters

_D = symbols("d", integer=True, positive=True)
_W1, _W2, _X = Parameter("W", (1,), _D, _D), Parameter("W", (2,), _D, _D), Parameter("x", (), _D, 1)
_S, _K = Stack(), i + 1


def _diamond_shape() -> Outcome:
    w, x = entries(Parameter("W", (), 3, 2)), entries(Parameter("x", (), 3, 1))
    rows = column_sums(w, x).rows
    return Outcome(rows == 3, f"for m = 3 and n = 2 the product has {rows} entries, one for each column of W")


def _diamond_is_transposed() -> Outcome:
    w, x = entries(Parameter("W", (), 3, 2)), entries(Parameter("x", (), 3, 1))
    return Outcome(same(column_sums(w, x), w.T * x), "column sums and W^T x are equal entry by entry")


def _first_identity(from_left: bool) -> Outcome:
    left = diamond(_W1, diamond(_W2, _X))
    right = diamond(diamond(_W2.T, _W1), _X) if from_left else diamond(_W2.T, diamond(_W1, _X))
    return identity(left, right)


def _second_identity(from_left: bool) -> Outcome:
    left = diamond(_W2, diamond(_W1, _X))
    right = diamond(diamond(_W1.T, _W2), _X) if from_left else diamond(_W1.T, diamond(_W2, _X))
    return identity(left, right)


def _bad_line(expected: MatrixExpr, first: MatrixExpr, second: MatrixExpr) -> Outcome:
    """Decide whether `A ⋄ B ⋄ x` without transposes equals what it should, in either bracketing."""
    outcomes = [
        identity(expected, diamond(diamond(first, second), _X)),
        identity(expected, diamond(first, diamond(second, _X))),
    ]
    return Outcome(
        any(o.holds for o in outcomes), f"from the left: {outcomes[0].how}; from the right: {outcomes[1].how}"
    )


def _distributes() -> Outcome:
    y = Parameter("y", (), _D, 1)
    return identity(diamond(_W1, _X + y), diamond(_W1, _X) + diamond(_W1, y))


def _no_distributivity() -> Outcome:
    found = _distributes()
    return Outcome(not found.holds, f"W ⋄ (x + y) = W ⋄ x + W ⋄ y is {found.how}")


def _no_associativity() -> Outcome:
    associates = identity(diamond(diamond(_W1, _W2), _X), diamond(_W1, diamond(_W2, _X)))
    return Outcome(not associates.holds, associates.how)


def _missing_x() -> Outcome:
    """`W_1 ⋄ [x ⋄ W_2] = W_{12}` as printed, a vector and a matrix."""
    product = _W1.T * _W2.T
    fits = product.shape == (_D, 1)
    return Outcome(fits, f"the left side is {_D} × 1 and W_{{12}} is {product.shape[0]} × {product.shape[1]}")


def _with_x() -> Outcome:
    return identity(diamond(_W1, diamond(_W2, _X)), _W1.T * _W2.T * _X)


def _linear_by_diamond() -> Outcome:
    n, m = symbols("N M", integer=True, positive=True)
    w, x = Parameter("W", (), n, n), Variable("x", (), n, m)
    kronecker = Kronecker(w, Identity(m))
    return identity(Vec(w * x), diamond(kronecker.T, Vec(x)))


def _columns_as_printed() -> Outcome:
    """The printed matrix of Eq. 15 has `w_{1,1}, 0, …, w_{1,2}, 0, …` as its first column."""
    w = entries(Parameter("W", (), 3, 3))
    printed = [w[0, k // 2] if k % 2 == 0 else 0 for k in range(6)]
    first = list(linear_on_rows(3, 2).matrix.T[:, 0])
    return Outcome(
        first == printed and linear_on_rows(3, 2).agree,
        "the first column is the printed one, N = 3, M = 2, and W' fits",
    )


def _sparsity() -> Outcome:
    whole = linear_on_rows(2, 3).matrix
    return Outcome(1 - density(whole) == Fraction(1, 3), f"for M = 3 the share of zeros is {1 - density(whole)}")


def _density_of_linear() -> Outcome:
    sizes = ((2, 2), (2, 3), (3, 4))
    good = all(density(linear_on_rows(n, m).matrix) == Fraction(1, m) for n, m in sizes)
    return Outcome(good, "the share of entries that aren't zero is 1/M, counted at three sizes")


def _head_is_dense() -> Outcome:
    sizes = ((2, 2), (3, 2), (2, 3))
    good = all(attention(n, m, 1).value.density == 1 for n, m in sizes)
    whole = attention(2, 4, 2).value.density
    return Outcome(
        good,
        "for one head every entry is a product of variables; for all heads together the density is 1/h"
        f" ({whole} at h = 2)",
    )


def _pattern_is_parameter() -> Outcome:
    held, x = pattern(2, 2), entries(Parameter("x", (), 2, 2))
    common = sorted(map(str, held.free_symbols & x.free_symbols))
    return Outcome(not common, f"its entries contain {', '.join(common)}")


def _two_sums() -> Outcome:
    """N_1 = N_2 = 1 of N = 2 terms t_1 = 0 and t_2 = 10, with f = 10 and ε = 1."""
    terms, f, epsilon = (0, 10), 10, 1
    premise = abs(sum(terms) - f) < epsilon
    claimed = abs(terms[0] - f) < epsilon + abs(terms[0])
    return Outcome(
        not premise or claimed,
        "counterexample, terms 0 and 10, N_1 = N_2 = 1, f = 10, ε = 1: |0 + 10 − f| < ε, and"
        f" {abs(terms[0] - f)} < ε + 0 is wrong",
    )


def _uat_without_factor() -> Outcome:
    born = _S.W(_K, 3) * _S.activation(_K)
    return identity(_S.UAT(_K), _S.UAT(i) + born, _S.recursions)


def _uat_with_factor() -> Outcome:
    return identity(_S.UAT(_K), _S.W(_K, 1) * _S.UAT(i) + _S.W(_K, 3) * _S.activation(_K), _S.recursions)


def _last_outer_is_dynamic() -> Outcome:
    """The last layer's `W'_{i,3}` contains no attention pattern."""
    outer = next(d.right for d in parameters("paper") if d.left == _S.W(_K, 3))
    letters = {p.letter for p in outer.atoms(Parameter)}
    return Outcome("A'" in letters, "W'_{i,3} of the last layer is the MLP's own matrix, without attention")


def _inner_and_path_are_dynamic() -> Outcome:
    found = {d.left: {p.letter for p in d.right.atoms(Parameter)} for d in parameters("paper")}
    good = all("A'" in found[_S.W(_K, role)] for role in (1, 2)) and not _last_outer_is_dynamic().holds
    return Outcome(good, "W'_{j,1} and W'_{j,2} contain attention in every layer, W'_{j,3} as soon as it is carried on")


def _eq_9_of_003(outer: object) -> Outcome:
    y = _S.W(_K, 1) * _S.x(i)
    layer = y + _S.W(_K, 3) * Activation(_S.W(_K, 2) * y + _S.b(_K, 2)) + _S.b(_K, 3)
    inner = Activation(_S.W(_K, 2) * _S.W(_K, 1) * _S.x(i) + _S.b(_K, 2))
    return identity(layer, _S.W(_K, 1) * _S.x(i) + _S.b(_K, 3) + _S.W(outer, 3) * inner)


def _own_bias() -> Outcome:
    own = _S.W(3, 2) * _S.b(2, 3) + _S.b(3, 2) + _S.W(3, 2) * _S.UAT(2)
    return identity(_S.c(3), own, _S.recursions)


def _transposed_order() -> Outcome:
    """`W'_{HV}^T ⋄ W'_O = W'_{HV} W'_O`, applied transposed."""
    p = symbols("p", integer=True, positive=True)
    hv, o, x = Parameter("W'", ("HV",), p, p), Parameter("W'", ("O",), p, p), Parameter("x'", (), p, 1)
    symbolic = identity(Transpose(diamond(hv.T, o)) * x, diamond(o, diamond(hv, x)))
    return Outcome(symbolic.holds and order_of_transposed().holds, f"{symbolic.how}; {order_of_transposed().how}")


_DIAMOND = r"\mathbf{W}\diamond\mathbf{x}=\mathbf{y}"

CLAIMS = (
    Claim(
        "2",
        "001",
        r"|G(\mathbf{x})-f(\mathbf{x})|<\varepsilon\quad\text{for all}\quad\mathbf{x}\in\mathbf{I}_{n}",
        cited,
        remark="Cybenko's theorem, for continuous sigmoidal σ; it is cited, not proved here.",
    ),
    Claim(
        "4",
        "001",
        rf"{_DIAMOND},\quad\mathbf{{W}}\in\mathbb{{R}}^{{(m,n)}},\;\mathbf{{x}}\in\mathbb{{R}}^{{(m,1)}},\;\mathbf{{y}}\in\mathbb{{R}}^{{(m,1)}}",
        _diamond_shape,
        (("W is square", _diamond_is_transposed),),
        definition=True,
        remark="The first entry is printed as w_1 x_1 + w_31 * x_2 + …, for w_{1,1} x_1 + w_{2,1} x_2 + ….",
        corrected=rf"{_DIAMOND}=\mathbf{{W}}^{{T}}\mathbf{{x}},\quad\mathbf{{y}}\in\mathbb{{R}}^{{(n,1)}}",
        correction=_diamond_is_transposed,
    ),
    Claim(
        "diamond and transpose",
        "001",
        r"\mathbf{W}\diamond\mathbf{x}=\mathbf{W}^{T}\mathbf{x}=\mathbf{x}\diamond\mathbf{W}",
        _diamond_is_transposed,
        remark="The second equation is a definition.",
    ),
    Claim(
        "diamond not associative",
        "001",
        r"\text{the Diamond Matrix Multiplication does not possess the properties of associativity}\ldots",
        _no_associativity,
    ),
    Claim(
        "diamond not distributive",
        "001",
        r"\ldots\text{and distributivity}",
        _no_distributivity,
        remark="It is linear in both factors, as W^T x is.",
        corrected=r"\mathbf{W}\diamond(\mathbf{x}+\mathbf{y})=\mathbf{W}\diamond\mathbf{x}+\mathbf{W}\diamond\mathbf{y}",
        correction=_distributes,
    ),
    Claim(
        "first diamond identity",
        "001",
        r"\mathbf{W}_{1}\diamond[\mathbf{x}\diamond\mathbf{W}_{2}]=\mathbf{W}_{2}^{T}\diamond\mathbf{W}_{1}\diamond\mathbf{x}",
        lambda: _first_identity(False),
        (("the right side bracketed from the left", lambda: _first_identity(True)),),
        remark="As printed: bracketed from the right.",
        corrected=r"\mathbf{W}_{1}\diamond[\mathbf{x}\diamond\mathbf{W}_{2}]=(\mathbf{W}_{2}^{T}\diamond\mathbf{W}_{1})\diamond\mathbf{x}",
        correction=lambda: derived(diamond_derivation(), "the diamond product"),
    ),
    Claim(
        "second diamond identity",
        "001",
        r"[\mathbf{W}_{1}\diamond\mathbf{x}]\diamond\mathbf{W}_{2}=\mathbf{W}_{1}^{T}\diamond\mathbf{W}_{2}\diamond\mathbf{x}",
        lambda: _second_identity(False),
        (("the right side bracketed from the left", lambda: _second_identity(True)),),
        remark="As printed: bracketed from the right.",
        corrected=r"[\mathbf{W}_{1}\diamond\mathbf{x}]\diamond\mathbf{W}_{2}=(\mathbf{W}_{1}^{T}\diamond\mathbf{W}_{2})\diamond\mathbf{x}",
        correction=lambda: derived(diamond_derivation(), "the diamond product"),
    ),
    Claim(
        "W_12 in Appendix A",
        "001",
        r"\mathbf{W}_{1}\diamond[\mathbf{x}\diamond\mathbf{W}_{2}]=\mathbf{W}_{12},\quad\mathbf{W}_{12}=\mathbf{W}_{1}^{T}\mathbf{W}_{2}^{T}",
        _missing_x,
        (("x is left out after W_{12}, as in Eq. 13", _with_x),),
        corrected=r"\mathbf{W}_{1}\diamond[\mathbf{x}\diamond\mathbf{W}_{2}]=\mathbf{W}_{12}\mathbf{x}",
        correction=_with_x,
    ),
    Claim(
        "13",
        "001",
        r"\mathbf{W}_{1}\diamond[\mathbf{W}_{2}^{T}\mathbf{x}]=\cdots=(\mathbf{W}_{2}\mathbf{W}_{1})\diamond\mathbf{x}"
        r"=\mathbf{W}_{2}\diamond\mathbf{W}_{1}\diamond\mathbf{x}=\mathbf{W}_{2}^{T}\diamond\mathbf{W}_{1}\diamond\mathbf{x}",
        lambda: _bad_line(_W1.T * _W2.T * _X, _W2, _W1),
        remark="The line without the transpose equals neither neighbour; the last line is the identity,"
        " bracketed from the left.",
        corrected=r"(\mathbf{W}_{2}\mathbf{W}_{1})\diamond\mathbf{x}=(\mathbf{W}_{2}^{T}\diamond\mathbf{W}_{1})\diamond\mathbf{x}",
        correction=lambda: _first_identity(True),
    ),
    Claim(
        "14",
        "001",
        r"[\mathbf{W}_{1}^{T}\mathbf{x}]\diamond\mathbf{W}_{2}=\cdots=[\mathbf{W}_{1}\mathbf{W}_{2}]\diamond\mathbf{x}"
        r"=\mathbf{W}_{1}\diamond\mathbf{W}_{2}\diamond\mathbf{x}=\mathbf{W}_{1}^{T}\diamond\mathbf{W}_{2}\diamond\mathbf{x}",
        lambda: _bad_line(_W2.T * _W1.T * _X, _W1, _W2),
        remark="The line without the transpose equals neither neighbour; the last line is the identity,"
        " bracketed from the left.",
        corrected=r"[\mathbf{W}_{1}\mathbf{W}_{2}]\diamond\mathbf{x}=(\mathbf{W}_{1}^{T}\diamond\mathbf{W}_{2})\diamond\mathbf{x}",
        correction=lambda: _second_identity(True),
    ),
    Claim(
        "5",
        "001",
        r"\mathbf{x}_{i+1}^{\prime}=\mathbf{W}_{i}^{\prime}\diamond\mathbf{x}_{i}^{\prime}=(\mathbf{W}_{i}^{\prime})^{T}\mathbf{x}_{i}^{\prime}",
        _linear_by_diamond,
        remark="Here W' is the transpose of the newest version's.",
    ),
    Claim(
        "8",
        "001",
        r"\mathring{\mathbf{H}}=(\mathbf{W}_{HVO}^{\prime})^{T}(\mathbf{x}_{i})^{\prime}",
        pattern_moves,
        (("with the patterns held at their values on this input", held_pattern),),
        corrected=r"(\mathbf{W}_{HVO}^{\prime})^{T}=\sum_{k=1}^{h}\mathbf{H}_{k}\otimes"
        r"\left(\mathbf{S}_{k}\mathbf{W}_{V,k}\mathbf{S}_{k}^{T}\mathbf{W}_{O}\right)^{T}",
        correction=held_pattern,
    ),
    Claim(
        "order of factors",
        "001",
        r"\mathbf{W}_{HVO}^{\prime}=\mathbf{W}_{WH}^{\prime T}\diamond\mathbf{W}_{O}^{\prime}",
        _transposed_order,
        remark="So W'_{HVO} = W'_{HV} W'_O for matrices that are applied transposed: the order that the newest"
        " version exchanges.",
    ),
    Claim(
        "H as a parameter",
        "001",
        r"\mathbf{H}_{i}\text{ is derived from }\mathbf{W}_{Qi}\text{ and }\mathbf{W}_{Ki}\text{ and can be"
        " directly regarded as a parameter matrix}",
        _pattern_is_parameter,
        (("held at its value on this input", held_pattern),),
        remark="The newest version adds x_i to what it is derived from.",
        corrected=r"\mathbf{H}_{i}=\mathbf{H}_{i}(\mathbf{x}_{i}),\text{ held}",
        correction=held_pattern,
    ),
    Claim(
        "12",
        "001",
        r"\left|\sum_{j=1}^{N_{1}}\alpha_{j}\sigma(\mathbf{W}_{j}^{\mathrm{T}}\mathbf{x}+\theta_{j})-f(\mathbf{x})\right|"
        r"<\varepsilon+\left|\sum_{j=1}^{N_{2}}\alpha_{j}\sigma(\mathbf{W}_{j}^{\mathrm{T}}\mathbf{x}+\theta_{j})\right|",
        _two_sums,
        (("the terms of each of the two sets are numbered anew", pruning_bound),),
        corrected=r"\left|\sum_{j\in\Lambda_{1}}\cdots-f(\mathbf{x})\right|<\varepsilon+\left|\sum_{j\in\Lambda_{2}}\cdots\right|",
        correction=pruning_bound,
    ),
    Claim(
        "15",
        "001",
        r"\mathbf{W}\mathbf{x}=\mathbf{y}\rightarrow\left(\begin{array}{cc}w_{1,1}&\cdots\\0&\cdots\\w_{1,2}&\cdots\\0&\cdots\\"
        r"\vdots&\cdots\end{array}\right)\diamond\mathbf{x}'=\mathbf{y}'",
        _columns_as_printed,
    ),
    Claim(
        "sparsity of Linear",
        "001",
        r"\text{the sparsity of the parameter matrix corresponding to the Linear operation is }1/M",
        _sparsity,
        (("'sparsity' is the share of entries that aren't zero, its density", _density_of_linear),),
        corrected=r"\text{density }1/M",
        correction=_density_of_linear,
    ),
    Claim(
        "dense head",
        "001",
        r"\text{It can be observed that }\mathbf{W}_{WHi}^{\prime}\text{ is a dense matrix}",
        _head_is_dense,
        remark="For generic values, and without a mask.",
    ),
    Claim(
        "4",
        "003",
        rf"{_DIAMOND},\quad\mathbf{{W}}\in\mathbb{{R}}^{{(m,n)}},\;\mathbf{{x}}\in\mathbb{{R}}^{{(m,1)}},\;\mathbf{{y}}\in\mathbb{{R}}^{{(m,1)}}",
        _diamond_shape,
        (("W is square", _diamond_is_transposed),),
        definition=True,
        corrected=rf"{_DIAMOND}=\mathbf{{W}}^{{T}}\mathbf{{x}},\quad\mathbf{{y}}\in\mathbb{{R}}^{{(n,1)}}",
        correction=_diamond_is_transposed,
    ),
    Claim(
        "5",
        "003",
        r"\mathbf{x}_{i+1}=\mathbf{W}_{i}\mathbf{x}_{i}\mapsto\mathbf{x}'_{i+1}=\mathbf{W}'_{i}\diamond\mathbf{x}'_{i}=(\mathbf{W}'_{i})^{T}\mathbf{x}'_{i}",
        _linear_by_diamond,
    ),
    Claim(
        "order of factors",
        "003",
        r"\mathbf{W}_{HVO}^{\prime}=\mathbf{W}_{HV}^{\prime T}\diamond\mathbf{W}_{O}^{\prime}",
        _transposed_order,
        remark="As its second diamond identity gives it.",
    ),
    Claim(
        "Lemma 2",
        "003",
        r"\mathbf{x}'_{i+1}=(\mathbf{W}'_{i+1,1}\mathbf{x}'_{i}+\mathbf{b}'_{i+1,3})"
        r"+\mathbf{W}'_{i+1,3}\sigma(\mathbf{W}'_{i+1,2}\mathbf{x}'_{i}+\mathbf{b}'_{i+1,2})\text{, stacked,"
        " has the form of the UAT}",
        lambda: derived(prove(), "the closed form at every depth"),
        remark="With biases that depend on the input: the newest version calls that form DUAT.",
    ),
    Claim(
        "general term in C.2",
        "003",
        r"\mathbf{x}'_{i+1}=(\mathbf{W}'_{i+1,1}\mathbf{x}_{i}+\mathbf{b}'_{i+1,3})+\mathbf{W}'_{i,3}\sigma(\mathbf{W}'_{i+1,2}\mathbf{x}_{i}+\mathbf{b}'_{i+1,2})",
        lambda: _eq_9_of_003(i),
        remark="The index of W'_{i,3} is one too low, as in Eq. 31 of the newest version.",
        corrected=r"\mathbf{x}'_{i+1}=(\mathbf{W}'_{i+1,1}\mathbf{x}_{i}+\mathbf{b}'_{i+1,3})"
        r"+\mathbf{W}'_{i+1,3}\sigma(\mathbf{W}'_{i+1,2}\mathbf{x}_{i}+\mathbf{b}'_{i+1,2})",
        correction=lambda: _eq_9_of_003(_K),
    ),
    Claim(
        "UAT of layer i+1",
        "003",
        r"UAT^{R}_{i+1}=UAT^{R}_{i}+\mathbf{W}'_{i+1,3}\sigma(\mathbf{W}'_{i+1,2}\mathbf{x}_{0}+\mathbf{b}'_{i+1,2})",
        _uat_without_factor,
        (("UAT_i on the right was already set to W'_{i+1,1} UAT_i, as a line above it says", _uat_with_factor),),
        corrected=r"\mathrm{UAT}^{R}_{i+1}=\mathbf{W}'_{i+1,1}\mathrm{UAT}^{R}_{i}"
        r"+\mathbf{W}'_{i+1,3}\sigma(\mathbf{B}_{i+1}\mathbf{x}'_{0}+\mathbf{c}_{i+1})",
        correction=recursions_proved,
    ),
    Claim(
        "bias below 11",
        "003",
        r"\mathbf{b}'_{j,2}=(\mathbf{W}'_{j,2}\mathbf{b}'_{j-1,3}+\mathbf{b}'_{j,2})+\mathbf{W}'_{j,2}UAT^{R}_{j-1}",
        _own_bias,
        (("on the right W'_{j,2} and b'_{j,2} are the layer's own, b'_{j−1,3} is updated", bias_two_indices),),
        corrected=r"\mathbf{c}_{j}=\mathbf{W}'_{j,2}\mathbf{q}_{j-1}+\mathbf{b}'_{j,2}+\mathbf{W}'_{j,2}\mathrm{UAT}^{R}_{j-1}",
        correction=closed_form_proved,
    ),
    Claim(
        "dynamic parameters",
        "003",
        r"\text{all }\mathbf{W}'_{j,1},\mathbf{W}'_{j,2}\text{ and }\mathbf{W}'_{j,3}\text{ for the }i\text{-th"
        r" layer, }j=1,\ldots,i"
        r"\text{, are dynamically changing with the input}",
        _last_outer_is_dynamic,
        corrected=r"\mathbf{W}'_{j,1},\mathbf{W}'_{j,2}\text{ for }j\le i\text{, and }\mathbf{W}'_{j,3}\text{ for }j<i",
        correction=_inner_and_path_are_dynamic,
    ),
)
