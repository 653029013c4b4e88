"""What versions 001 and 003 state differently: density, patterns, pruning, and the closed form."""

from fractions import Fraction

from symbolic.blocks.transformer import parameters
from symbolic.equality.normal_form import normal_form
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Parameter
from symbolic.papers.attention import attention_is_a_matrix, held_pattern
from symbolic.papers.checks import derived
from symbolic.papers.claim import Claim
from symbolic.papers.closed_form import bias_two_indices, dynamic_parameters
from symbolic.papers.counterexample import Outcome, identity
from symbolic.papers.residual import closed_form_proved, recursions_proved
from symbolic.papers.theory import cited, pruning_bound
from symbolic.theorems.closed_form import prove
from symbolic.theorems.residual_stack import ResidualStack, i
from symbolic.vectorisation.attention import pattern
from symbolic.vectorisation.entries import density, entries
from symbolic.vectorisation.linear import linear_on_rows

_S, _K = ResidualStack(), i + 1


def _columns_as_printed() -> Outcome:
    """The first columns printed in Eq. 15 are `w_{1,1}, 0, …, w_{1,2}, 0, …` and `0, w_{1,1}, …, 0, w_{1,2}, …`."""
    w = entries(Parameter("W", (), 3, 3))
    printed = [[w[0, k // 2] if k % 2 == column else 0 for k in range(6)] for column in (0, 1)]
    found = linear_on_rows(3, 2)
    columns = [list(found.matrix.T[:, column]) for column in (0, 1)]
    return Outcome(
        columns == printed and found.agree, "its first columns are the printed ones, N = 3, M = 2, and W' fits"
    )


def _sparsity() -> Outcome:
    whole = linear_on_rows(2, 3).matrix
    return Outcome(1 - density(whole) == Fraction(1, 3), f"for M = 3 the share of zeros is {1 - density(whole)}")


def _density_of_linear() -> Outcome:
    sizes = ((2, 2), (2, 3), (3, 4))
    good = all(density(linear_on_rows(n, m).matrix) == Fraction(1, m) for n, m in sizes)
    return Outcome(good, "the share of entries that aren't zero is 1/M, counted at three sizes")


def _wrong_set() -> Outcome:
    """S_1 = 0 is small, S_2 = 10 = f: without Λ_2 the error is 10."""
    kept, removed, f = 0, 10, 10
    before, after = abs(kept + removed - f), abs(kept - f)
    return Outcome(
        after <= before,
        f"counterexample, S_1 = {kept}, S_2 = f = {f}: removing Λ_2 takes the error from {before} to {after}",
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


def _dynamic_in_003() -> Outcome:
    """The carried outer matrices of j = 1, …, i of i + 1 layers, and the path and inner matrices of every layer."""
    found = {d.left: {p.letter for p in d.right.atoms(Parameter)} for d in parameters("paper")}
    others = all("A'" in found[_S.W(_K, role)] for role in (1, 2))
    outer = dynamic_parameters({1, 2, 3}, 4)
    return Outcome(others and outer.holds, f"W'_{{j,1}} and W'_{{j,2}} contain attention in every layer; {outer.how}")


def _fixed_biases() -> Outcome:
    """A sum as in Eq. 1 has fixed biases; `c_2` contains the input."""
    letters = normal_form(_S.c(2), _S.recursions).expression().atoms(Parameter)
    return Outcome(
        _S.x(0) not in letters,
        "from depth 2 on the bias inside the activation, c_2, contains x'_0, and P x'_0 + q is added",
    )


def _eq_9_of_003(outer: object) -> Outcome:
    y = _S.W(_K, 1) * _S.x(i)
    layer = y + _S.W(_K, 3) * Activation(_S.W(_K, 2) * y + _S.b(_K, 2)) + _S.b(_K, 3)
    inner = Activation(_S.W(_K, 2) * _S.W(_K, 1) * _S.x(i) + _S.b(_K, 2))
    return identity(layer, _S.W(_K, 1) * _S.x(i) + _S.b(_K, 3) + _S.W(outer, 3) * inner)


def _own_bias() -> Outcome:
    own = _S.W(3, 2) * _S.b(2, 3) + _S.b(3, 2) + _S.W(3, 2) * _S.UAT(2)
    return identity(_S.c(3), own, _S.recursions)


CLAIMS = (
    Claim(
        "2",
        "001",
        r"|G(\mathbf{x})-f(\mathbf{x})|<\varepsilon\quad\text{for all}\quad\mathbf{x}\in\mathbf{I}_{n}",
        cited,
        remark="Cybenko's theorem, for continuous sigmoidal σ; it is cited, not proved here.",
    ),
    Claim(
        "8",
        "001",
        r"\mathring{\mathbf{H}}=(\mathbf{W}_{HVO}^{\prime})^{T}(\mathbf{x}_{i})^{\prime}",
        attention_is_a_matrix,
        remark="It moves with the input through H_k.",
    ),
    Claim(
        "H as a parameter",
        "001",
        r"\mathbf{H}_{i}\text{ is derived based on the parameters }\mathbf{W}_{Qi}\text{ and }\mathbf{W}_{Ki}"
        r"\text{, and can be directly regarded as parameters matrix now}",
        _pattern_is_parameter,
        (("held at its value on this input", held_pattern),),
        remark="Its Section 3.5 says itself that H should be regarded as generated in response to the input.",
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
        corrected=r"\left|\sum_{j\in\Lambda_{1}}\alpha_{j}\sigma(\mathbf{W}_{j}^{\mathrm{T}}\mathbf{x}+\theta_{j})-f(\mathbf{x})\right|"
        r"<\varepsilon+\left|\sum_{j\in\Lambda_{2}}\alpha_{j}\sigma(\mathbf{W}_{j}^{\mathrm{T}}\mathbf{x}+\theta_{j})\right|",
        correction=pruning_bound,
    ),
    Claim(
        "15",
        "001",
        r"\mathbf{W}\mathbf{x}=\mathbf{y}\rightarrow\left(\begin{array}{ccc}w_{1,1}&0&\cdots\\0&w_{1,1}&\cdots\\\vdots&\vdots&\cdots\\"
        r"w_{1,2}&0&\cdots\\0&w_{1,2}&\cdots\\\vdots&\vdots&\cdots\end{array}\right)\diamond\mathbf{x}'=\mathbf{y}'",
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
        "premise of pruning",
        "001",
        r"\left|\sum_{j\in\Lambda_{1}}\alpha_{j}\sigma(\mathbf{W}_{j}^{\mathrm{T}}\mathbf{x}+\theta_{j})\right|\to 0"
        r"\text{, where }\Lambda_{1}\text{ is kept and }\Lambda_{2}\text{ removed}",
        _wrong_set,
        remark="The set that is removed has to be the small one; the newest version prints Λ_2.",
        corrected=r"\left|\sum_{j\in\Lambda_{2}}\alpha_{j}\sigma(\mathbf{W}_{j}^{\mathrm{T}}\mathbf{x}+\theta_{j})"
        r"\right|\to 0",
        correction=pruning_bound,
    ),
    Claim(
        "Lemma 2",
        "003",
        r"\mathbf{x}'_{i+1}=(\mathbf{W}'_{i+1,1}\mathbf{x}'_{i}+\mathbf{b}'_{i+1,3})"
        r"+\mathbf{W}'_{i+1,3}\sigma(\mathbf{W}'_{i+1,2}\mathbf{x}'_{i}+\mathbf{b}'_{i+1,2})\text{, stacked,"
        " has the form of the UAT}",
        _fixed_biases,
        (
            (
                "biases may depend on the input, which the newest version calls DUAT, and one affine term is added",
                lambda: derived(prove(), "the closed form at every depth"),
            ),
        ),
        corrected=r"\mathbf{x}_{i}=\mathbf{P}_{i}\mathbf{x}_{0}+\mathbf{q}_{i}+\sum_{j=1}^{i}\mathbf{C}_{j}^{(i)}"
        r"\sigma(\mathbf{B}_{j}\mathbf{x}_{0}+\mathbf{c}_{j}(\mathbf{x}_{0}))",
        correction=closed_form_proved,
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
        _dynamic_in_003,
        remark="Of the i + 1 layers of its Eq. 11: the last one's W'_{i+1,3} stands still, and the sentence leaves"
        " it out.",
    ),
)
