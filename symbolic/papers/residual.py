"""The residual network in B.1 and B.2: Eq. 20–27, with what is defined between them."""

from sympy import Integer, MatrixExpr, Max, Symbol, exp, limit, oo

from symbolic.blocks.transformer import prove_block
from symbolic.equality.definition import Definition
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Parameter
from symbolic.papers.checks import adds, chain, derived
from symbolic.papers.claim import Claim
from symbolic.papers.counterexample import Outcome, identity
from symbolic.papers.updates import Assignment, all_at_once, in_order
from symbolic.theorems.closed_form import prove
from symbolic.theorems.recursions import recursions
from symbolic.theorems.residual_stack import ResidualStack, i

S = ResidualStack()

K = i + 1


def updated_b1(k: object) -> Parameter:
    """Return `b'_{k,1}`, which the papers use for the updated `b'_{k,3}` in places."""
    return Parameter("b'", (k, 1), S.width, 1)


def closed_form_proved() -> Outcome:
    """Decide the closed form in two indices, for every depth."""
    return derived(prove_block("paper"), "induction over the layers of Eq. 30, two indices")


def recursions_proved() -> Outcome:
    """Decide the recursions in two indices."""
    return derived(recursions(depth=4), "the recursions, and the network at depth 4")


def _lines_22() -> Outcome:
    s = S
    first = s.W(1, 1) * s.x(0) + s.b(1, 3)
    term = Activation(s.W(1, 2) * s.x(0) + s.b(1, 2))
    x1 = first + s.W(1, 3) * term
    lines = [
        s.W(2, 1) * s.x(1) + s.W(2, 3) * Activation(s.W(2, 2) * s.x(1) + s.b(2, 2)) + s.b(2, 3),
        s.general_term(2),
        s.W(2, 1) * x1 + s.b(2, 3) + s.W(2, 3) * Activation(s.W(2, 2) * x1 + s.b(2, 2)),
        s.W(2, 1) * first
        + s.b(2, 3)
        + s.W(2, 1) * s.W(1, 3) * term
        + s.W(2, 3) * Activation(s.W(2, 2) * first + s.b(2, 2) + s.W(2, 2) * s.W(1, 3) * term),
        s.W(2, 1) * s.W(1, 1) * s.x(0)
        + (s.W(2, 1) * s.b(1, 3) + s.b(2, 3))
        + s.W(2, 1) * s.W(1, 3) * term
        + s.W(2, 3)
        * Activation(
            s.W(2, 2) * s.W(1, 1) * s.x(0) + (s.W(2, 2) * s.b(1, 3) + s.b(2, 2)) + s.W(2, 2) * s.W(1, 3) * term
        ),
    ]
    return chain(s.x(2), lines, [s.equation_20])


_LETS = [
    Assignment(S.W(2, 1), S.W(2, 1) * S.W(1, 1)),
    Assignment(updated_b1(2), S.W(2, 1) * S.b(1, 3) + S.b(2, 3)),
    Assignment(S.W(1, 3), S.W(2, 1) * S.W(1, 3)),
    Assignment(S.W(2, 2), S.W(2, 2) * S.W(1, 1)),
    Assignment(
        S.b(2, 2),
        S.W(2, 2) * S.b(1, 3) + S.b(2, 2) + S.W(2, 2) * S.W(1, 3) * Activation(S.W(1, 2) * S.x(0) + S.b(1, 2)),
    ),
]

_FORM_23 = (
    S.W(2, 1) * S.x(0)
    + updated_b1(2)
    + S.W(1, 3) * Activation(S.W(1, 2) * S.x(0) + S.b(1, 2))
    + S.W(2, 3) * Activation(S.W(2, 2) * S.x(0) + S.b(2, 2))
)


def _eq_23(state: dict[Parameter, MatrixExpr]) -> Outcome:
    return identity(S.x(2), _FORM_23.xreplace(state), [S.equation_20])


def _eq_24() -> Outcome:
    uat = Definition(S.UAT(1), S.W(1, 3) * Activation(S.W(1, 2) * S.x(0) + S.b(1, 2)))
    return identity(S.x(1), S.W(1, 1) * S.x(0) + S.b(1, 3) + S.UAT(1), [S.equation_20, uat])


def _uat_printed(stack: ResidualStack, k: int) -> MatrixExpr:
    inner = Activation(stack.W(k, 1) * stack.x(0) + Parameter("b'", (k, 1), stack.width, 1))
    return stack.W(k, 2) * inner


def _uat_with_equal_sizes() -> Outcome:
    stack = ResidualStack(S.width, S.width)
    needed = stack.W(1, 3) * Activation(stack.W(1, 2) * stack.x(0) + stack.b(1, 2))
    return identity(needed, _uat_printed(stack, 1))


HYPOTHESIS = Definition(S.x(i), S.W(i, 1) * S.x(0) + updated_b1(i) + S.UAT(i))

FORM_I = HYPOTHESIS.right


def _lines_26() -> Outcome:
    w = S.W(K, 1)
    lines = [
        w * FORM_I + S.b(K, 3),
        w * (S.W(i, 1) * S.x(0) + updated_b1(i)) + w * S.UAT(i) + S.b(K, 3),
        w * S.W(i, 1) * S.x(0) + (w * updated_b1(i) + S.b(K, 3)) + w * S.UAT(i),
    ]
    return chain(w * S.x(i) + S.b(K, 3), lines, [HYPOTHESIS])


def _lines_27() -> Outcome:
    w, bias, outer = S.W(K, 2), S.b(K, 2), S.W(K, 3)
    lines = [
        outer * Activation(w * FORM_I + bias),
        outer * Activation(w * (S.W(i, 1) * S.x(0) + updated_b1(i)) + w * S.UAT(i) + bias),
        outer * Activation(w * S.W(i, 1) * S.x(0) + (w * updated_b1(i) + bias) + w * S.UAT(i)),
    ]
    return chain(outer * Activation(w * S.x(i) + bias), lines, [HYPOTHESIS])


SETTINGS = [
    Assignment(S.W(K, 1), S.W(K, 1) * S.W(i, 1)),
    Assignment(updated_b1(K), S.W(K, 1) * updated_b1(i) + S.b(K, 3)),
    Assignment(S.W(K, 2), S.W(K, 2) * S.W(i, 1)),
    Assignment(S.b(K, 2), S.W(K, 2) * updated_b1(i) + S.b(K, 2) + S.W(K, 2) * S.UAT(i)),
]

_NEW_TERM = S.W(K, 3) * Activation(S.W(K, 2) * S.x(0) + S.b(K, 2))

_NEW_UAT = Assignment(S.UAT(K), S.W(K, 1) * S.UAT(i) + _NEW_TERM)

_NEW_FORM = S.W(K, 1) * S.x(0) + updated_b1(K) + S.UAT(K)


def _settings(state: dict[Parameter, MatrixExpr]) -> Outcome:
    return identity(S.x(K), _NEW_FORM.xreplace(state), [HYPOTHESIS, S.equation_20])


def _settings_as_meant() -> Outcome:
    """The first four at once; then `UAT^R_{i+1}` with the layer's own `W'_{i+1,1}`, and updated symbols inside σ."""
    state = all_at_once(SETTINGS)
    uat = S.W(K, 1) * S.UAT(i) + _NEW_TERM.xreplace(state)
    return _settings(state | {S.UAT(K): uat})


def _affine_as_terms(*, sigmoid: bool) -> Outcome:
    """Decide whether t is a sum of terms of a sigmoid, by its limits, or of the ReLU, by the signs of t."""
    t = Symbol("t", real=True)
    if sigmoid:
        bound, grows = limit(1 / (1 + exp(-t)), t, oo), limit(t, t, oo)
        return Outcome(
            grows == bound,
            f"a sigmoid tends to {bound}, so every finite sum of terms is bounded, and t tends to {grows}",
        )
    good = all(Max(0, v) - Max(0, -v) == v for v in (Integer(-3), Integer(0), Integer(5)))
    positive = Symbol("p", positive=True)
    symbolic = all(Max(0, v) - Max(0, -v) == v for v in (positive, -positive))
    return Outcome(good and symbolic, "max(0, t) − max(0, −t) = t for t > 0, t = 0 and t < 0")


CLOSED = (
    r"\mathbf{x}_{i}=\mathbf{P}_{i}\mathbf{x}_{0}+\mathbf{q}_{i}+\sum_{j=1}^{i}\mathbf{C}_{j}^{(i)}"
    r"\sigma(\mathbf{B}_{j}\mathbf{x}_{0}+\mathbf{c}_{j})"
)

CLAIMS = (
    Claim(
        "20",
        "000",
        r"\mathbf{x}^{\prime}_{i}=(\mathbf{W}^{\prime}_{i,1}\mathbf{x}^{\prime}_{i-1}+\mathbf{b}^{\prime}_{i,3})"
        r"+\mathbf{W}^{\prime}_{i,3}\sigma(\mathbf{W}^{\prime}_{i,2}\mathbf{x}^{\prime}_{i-1}+\mathbf{b}^{\prime}_{i,2})",
        lambda: adds(S.x(i), S.general_term(i)),
        definition=True,
        remark="Every block type is an instance of it, with its patterns and scales held.",
    ),
    Claim(
        "21",
        "000",
        r"\mathbf{x}^{\prime}_{1}=(\mathbf{W}^{\prime}_{1,1}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{1,3})"
        r"+\mathbf{W}^{\prime}_{1,3}\sigma(\mathbf{W}^{\prime}_{1,2}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{1,2})",
        lambda: identity(S.x(1), S.general_term(1), [S.equation_20]),
    ),
    Claim(
        "22",
        "000",
        r"\begin{aligned}\mathbf{x}^{\prime}_{2}&=\mathbf{W}^{\prime}_{2,1}\mathbf{x}^{\prime}_{1}"
        r"+\mathbf{W}^{\prime}_{2,3}\sigma(\mathbf{W}^{\prime}_{2,2}\mathbf{x}^{\prime}_{1}+\mathbf{b}^{\prime}_{2,2})+\mathbf{b}^{\prime}_{2,3}=\cdots\\"
        r"&=\{(\mathbf{W}^{\prime}_{2,1}\mathbf{W}^{\prime}_{1,1}\mathbf{x}^{\prime}_{0}+\mathbf{W}^{\prime}_{2,1}\mathbf{b}^{\prime}_{1,3}"
        r"+\mathbf{b}^{\prime}_{2,3})+\mathbf{W}^{\prime}_{2,1}\mathbf{W}^{\prime}_{1,3}"
        r"\sigma(\mathbf{W}^{\prime}_{1,2}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{1,2})\}\\"
        r"&+\mathbf{W}^{\prime}_{2,3}\sigma\{\mathbf{W}^{\prime}_{2,2}\mathbf{W}^{\prime}_{1,1}\mathbf{x}^{\prime}_{0}"
        r"+(\mathbf{W}^{\prime}_{2,2}\mathbf{b}^{\prime}_{1,3}+\mathbf{b}^{\prime}_{2,2})+\mathbf{W}^{\prime}_{2,2}\mathbf{W}^{\prime}_{1,3}"
        r"\sigma(\mathbf{W}^{\prime}_{1,2}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{1,2})\}\end{aligned}",
        _lines_22,
    ),
    Claim(
        "23",
        "000",
        r"\mathbf{x}^{\prime}_{2}=(\mathbf{W}^{\prime}_{2,1}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{2,1})"
        r"+\mathbf{W}^{\prime}_{1,3}\sigma(\mathbf{W}^{\prime}_{1,2}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{1,2})"
        r"+\mathbf{W}^{\prime}_{2,3}\sigma(\mathbf{W}^{\prime}_{2,2}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{2,2})",
        lambda: _eq_23(in_order(_LETS)),
        (
            (
                "the five symbols are set all at once, with their original values on the right",
                lambda: _eq_23(all_at_once(_LETS)),
            ),
        ),
        corrected=r"\mathbf{x}'_{2}=\mathbf{P}_{2}\mathbf{x}'_{0}+\mathbf{q}_{2}"
        r"+\mathbf{C}_{1}^{(2)}\sigma(\mathbf{B}_{1}\mathbf{x}'_{0}+\mathbf{c}_{1})+\mathbf{C}_{2}^{(2)}\sigma(\mathbf{B}_{2}\mathbf{x}'_{0}+\mathbf{c}_{2})",
        correction=recursions_proved,
    ),
    Claim(
        "24",
        "000",
        r"\mathbf{x}^{\prime}_{1}=(\mathbf{W}^{\prime}_{1,1}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{1,3})+UAT^{R}_{1}",
        _eq_24,
    ),
    Claim(
        "25",
        "000",
        r"\mathbf{x}^{\prime}_{2}=(\mathbf{W}^{\prime}_{2,1}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{2,1})+UAT^{R}_{2}",
        lambda: _eq_23(in_order(_LETS)),
        (("as Eq. 23, all symbols set at once", lambda: _eq_23(all_at_once(_LETS))),),
        corrected=r"\mathbf{x}'_{2}=\mathbf{P}_{2}\mathbf{x}'_{0}+\mathbf{q}_{2}+\mathrm{UAT}^{R}_{2}",
        correction=recursions_proved,
    ),
    Claim(
        "definition of UAT in B.2",
        "000",
        r"UAT^{R}_{i}=\sum_{j=1}^{i}\mathbf{W}^{\prime}_{j,2}\sigma(\mathbf{W}^{\prime}_{j,1}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{j,1})",
        lambda: adds(S.x(1), _uat_printed(S, 1)),
        (("neurons and stream of one size, so that the shapes fit", _uat_with_equal_sizes),),
        remark="The second indices are one too low; UAT_1, UAT_2 and the same sum in B.3 are printed right.",
        corrected=r"\mathrm{UAT}^{R}_{i}=\sum_{j=1}^{i}\mathbf{C}_{j}^{(i)}\sigma(\mathbf{B}_{j}\mathbf{x}'_{0}+\mathbf{c}_{j})",
        correction=lambda: derived(prove(), "induction with this definition"),
    ),
    Claim(
        "26",
        "000",
        r"\mathbf{W}^{\prime}_{i+1,1}\mathbf{x}^{\prime}_{i}+\mathbf{b}^{\prime}_{i+1,3}=\cdots="
        r"\{[\mathbf{W}^{\prime}_{i+1,1}\mathbf{W}^{\prime}_{i,1}\mathbf{x}^{\prime}_{0}"
        r"+(\mathbf{W}^{\prime}_{i+1,1}\mathbf{b}^{\prime}_{i,1}+\mathbf{b}^{\prime}_{i+1,3})]+\mathbf{W}^{\prime}_{i+1,1}UAT^{R}_{i}\}",
        _lines_26,
        remark="Symbols of index i are those of the hypothesis, of index i + 1 the layer's own; b'_{1,1} is b'_{1,3}"
        " of Eq. 24.",
    ),
    Claim(
        "27",
        "000",
        r"\mathbf{W}^{\prime}_{i+1,3}\sigma(\mathbf{W}^{\prime}_{i+1,2}\mathbf{x}^{\prime}_{i}+\mathbf{b}^{\prime}_{i+1,2})=\cdots="
        r"\mathbf{W}^{\prime}_{i+1,3}\sigma\{\mathbf{W}^{\prime}_{i+1,2}\mathbf{W}^{\prime}_{i,1}\mathbf{x}^{\prime}_{0}"
        r"+(\mathbf{W}^{\prime}_{i+1,2}\mathbf{b}^{\prime}_{i,1}+\mathbf{b}^{\prime}_{i+1,2})+\mathbf{W}^{\prime}_{i+1,2}UAT^{R}_{i}\}",
        _lines_27,
        remark="Symbols of index i are those of the hypothesis, of index i + 1 the layer's own.",
    ),
    Claim(
        "UAT of layer i+1",
        "000",
        r"UAT^{R}_{i+1}=\mathbf{W}^{\prime}_{i+1,1}UAT^{R}_{i}"
        r"+\mathbf{W}^{\prime}_{i+1,3}\sigma(\mathbf{W}^{\prime}_{i+1,2}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{i+1,2})",
        lambda: _settings(in_order([*SETTINGS, _NEW_UAT])),
        (
            (
                "W'_{i+1,1} before UAT_i is the layer's own, though it was just set anew; inside σ the symbols"
                " are updated",
                _settings_as_meant,
            ),
        ),
        corrected=r"\mathrm{UAT}^{R}_{i+1}=\mathbf{W}'_{i+1,1}\mathrm{UAT}^{R}_{i}"
        r"+\mathbf{W}'_{i+1,3}\sigma(\mathbf{B}_{i+1}\mathbf{x}'_{0}+\mathbf{c}_{i+1})",
        correction=recursions_proved,
    ),
    Claim(
        "a single term",
        "000",
        r"\text{a single term does not alter the nature of UAT}",
        lambda: _affine_as_terms(sigmoid=True),
        (("σ is the ReLU, for which t = σ(t) − σ(−t)", lambda: _affine_as_terms(sigmoid=False)),),
        remark="The term is the affine map P x_0 + q. With a bounded σ it is no finite sum of terms; the closed form"
        " keeps it apart.",
        corrected=CLOSED,
        correction=closed_form_proved,
    ),
)
