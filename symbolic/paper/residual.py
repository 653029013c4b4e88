"""The residual network and its closed form: Eq. 11, 12 and 20–34, with the rules between them."""

from functools import partial
from typing import Any

from sympy import MatrixExpr

from symbolic.definitions import Definition
from symbolic.induction import prove
from symbolic.matrix_vector import mlp_derivation
from symbolic.normal_form import normal_form
from symbolic.operations import Activation, IndexedSum
from symbolic.paper.attention import held_pattern, pattern_moves
from symbolic.paper.checks import adds, at_depths, chain, derived
from symbolic.paper.claims import Claim
from symbolic.paper.counterexample import Outcome, identity
from symbolic.paper.updates import (
    DEPTHS,
    READINGS,
    Assignment,
    all_at_once,
    closed_form,
    in_order,
    paper_layer,
    reach,
)
from symbolic.stack import Stack, i, j
from symbolic.symbols import Parameter
from symbolic.transformer import parameters, prove_block
from symbolic.unrolled import recursions
from symbolic.words import Atom, NormalForm

_S = Stack()
_K = i + 1


def _b1(k: object) -> Parameter:
    """Return `b'_{k,1}`, which the papers use for the updated `b'_{k,3}` in places."""
    return Parameter("b'", (k, 1), _S.width, 1)


def closed_form_proved() -> Outcome:
    """Decide the closed form in two indices, for every depth."""
    return derived(prove_block("paper"), "induction over the layers of Eq. 30, two indices")


def recursions_proved() -> Outcome:
    """Decide the recursions in two indices."""
    return derived(recursions(depth=4), "the recursions, and the network at depth 4")


def _own_symbols() -> Outcome:
    """Eq. 33 with every symbol as a layer's own parameter."""
    layer = paper_layer(_S)
    return at_depths(lambda d: identity(_S.x(d), closed_form(_S, d), [layer]), DEPTHS)


def _bias_rule(k: Any, summand: MatrixExpr, before: MatrixExpr) -> MatrixExpr:
    return _S.W(k, 2) * before + _S.b(k, 2) + _S.W(k, 2) * IndexedSum(summand, j, 1, k - 1)


def _bias_own() -> Outcome:
    """Eq. 12 with every symbol on the right as a layer's own parameter, against the bias of a network of Eq. 20."""
    own = _S.W(j, 3) * Activation(_S.W(j, 2) * _S.x(0) + _S.b(j, 2))

    def at(depth: int) -> Outcome:
        return identity(_S.c(depth), _bias_rule(depth, own, _S.b(depth - 1, 3)), _S.recursions)

    return at_depths(at, DEPTHS[1:])


def bias_two_indices() -> Outcome:
    """Decide Eq. 12 with the meaning that the derivation gives every symbol, for a symbolic depth."""
    carried = _S.C(j, i) * _S.activation(j)
    return identity(_S.c(_K), _bias_rule(_K, carried, _S.q(i)), _S.recursions)


def _lines_22() -> Outcome:
    s = _S
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
    Assignment(_S.W(2, 1), _S.W(2, 1) * _S.W(1, 1)),
    Assignment(_b1(2), _S.W(2, 1) * _S.b(1, 3) + _S.b(2, 3)),
    Assignment(_S.W(1, 3), _S.W(2, 1) * _S.W(1, 3)),
    Assignment(_S.W(2, 2), _S.W(2, 2) * _S.W(1, 1)),
    Assignment(
        _S.b(2, 2),
        _S.W(2, 2) * _S.b(1, 3) + _S.b(2, 2) + _S.W(2, 2) * _S.W(1, 3) * Activation(_S.W(1, 2) * _S.x(0) + _S.b(1, 2)),
    ),
]
_FORM_23 = (
    _S.W(2, 1) * _S.x(0)
    + _b1(2)
    + _S.W(1, 3) * Activation(_S.W(1, 2) * _S.x(0) + _S.b(1, 2))
    + _S.W(2, 3) * Activation(_S.W(2, 2) * _S.x(0) + _S.b(2, 2))
)


def _eq_23(state: dict[Parameter, MatrixExpr]) -> Outcome:
    return identity(_S.x(2), _FORM_23.xreplace(state), [_S.equation_20])


def _eq_24() -> Outcome:
    uat = Definition(_S.UAT(1), _S.W(1, 3) * Activation(_S.W(1, 2) * _S.x(0) + _S.b(1, 2)))
    return identity(_S.x(1), _S.W(1, 1) * _S.x(0) + _S.b(1, 3) + _S.UAT(1), [_S.equation_20, uat])


def _uat_printed(stack: Stack, k: int) -> MatrixExpr:
    inner = Activation(stack.W(k, 1) * stack.x(0) + Parameter("b'", (k, 1), stack.width, 1))
    return stack.W(k, 2) * inner


def _uat_with_equal_sizes() -> Outcome:
    stack = Stack(_S.width, _S.width)
    needed = stack.W(1, 3) * Activation(stack.W(1, 2) * stack.x(0) + stack.b(1, 2))
    return identity(needed, _uat_printed(stack, 1))


_HYPOTHESIS = Definition(_S.x(i), _S.W(i, 1) * _S.x(0) + _b1(i) + _S.UAT(i))
_FORM_I = _HYPOTHESIS.right


def _lines_26() -> Outcome:
    w = _S.W(_K, 1)
    lines = [
        w * _FORM_I + _S.b(_K, 3),
        w * (_S.W(i, 1) * _S.x(0) + _b1(i)) + w * _S.UAT(i) + _S.b(_K, 3),
        w * _S.W(i, 1) * _S.x(0) + (w * _b1(i) + _S.b(_K, 3)) + w * _S.UAT(i),
    ]
    return chain(w * _S.x(i) + _S.b(_K, 3), lines, [_HYPOTHESIS])


def _lines_27() -> Outcome:
    w, bias, outer = _S.W(_K, 2), _S.b(_K, 2), _S.W(_K, 3)
    lines = [
        outer * Activation(w * _FORM_I + bias),
        outer * Activation(w * (_S.W(i, 1) * _S.x(0) + _b1(i)) + w * _S.UAT(i) + bias),
        outer * Activation(w * _S.W(i, 1) * _S.x(0) + (w * _b1(i) + bias) + w * _S.UAT(i)),
    ]
    return chain(outer * Activation(w * _S.x(i) + bias), lines, [_HYPOTHESIS])


_SETTINGS = [
    Assignment(_S.W(_K, 1), _S.W(_K, 1) * _S.W(i, 1)),
    Assignment(_b1(_K), _S.W(_K, 1) * _b1(i) + _S.b(_K, 3)),
    Assignment(_S.W(_K, 2), _S.W(_K, 2) * _S.W(i, 1)),
    Assignment(_S.b(_K, 2), _S.W(_K, 2) * _b1(i) + _S.b(_K, 2) + _S.W(_K, 2) * _S.UAT(i)),
]
_NEW_TERM = _S.W(_K, 3) * Activation(_S.W(_K, 2) * _S.x(0) + _S.b(_K, 2))
_NEW_UAT = Assignment(_S.UAT(_K), _S.W(_K, 1) * _S.UAT(i) + _NEW_TERM)
_NEW_FORM = _S.W(_K, 1) * _S.x(0) + _b1(_K) + _S.UAT(_K)


def _settings(state: dict[Parameter, MatrixExpr]) -> Outcome:
    return identity(_S.x(_K), _NEW_FORM.xreplace(state), [_HYPOTHESIS, _S.equation_20])


def _settings_as_meant() -> Outcome:
    """The first four at once; then `UAT^R_{i+1}` with the layer's own `W'_{i+1,1}`, and updated symbols inside σ."""
    state = all_at_once(_SETTINGS)
    uat = _S.W(_K, 1) * _S.UAT(i) + _NEW_TERM.xreplace(state)
    return _settings(state | {_S.UAT(_K): uat})


def _eq_30() -> Outcome:
    y = _S.W(_K, 1) * _S.x(i)
    folded = y + _S.W(_K, 3) * Activation(_S.W(_K, 2) * _S.W(_K, 1) * _S.x(i) + _S.b(_K, 2)) + _S.b(_K, 3)
    return identity(paper_layer(_S).right, folded)


def _eq_31(outer: object) -> Outcome:
    """Eq. 31 with `W'_{outer,3}`, its `W'_{i+1,2}` set to `W'_{i+1,2} W'_{i+1,1}`, against Eq. 30."""
    inner = _S.W(_K, 2) * _S.W(_K, 1)
    printed = _S.W(_K, 1) * _S.x(i) + _S.b(_K, 3) + _S.W(outer, 3) * Activation(inner * _S.x(i) + _S.b(_K, 2))
    return identity(paper_layer(_S).right, printed)


def _lines_32(outer: object) -> Outcome:
    """The lines of Eq. 32 with `W'_{outer,3}`, against Eq. 20 and the hypothesis."""
    s, w1, w2 = _S, _S.W(_K, 1), _S.W(_K, 2)
    lines = [
        w1 * s.x(i) + s.b(_K, 3) + s.W(outer, 3) * Activation(w2 * s.x(i) + s.b(_K, 2)),
        w1 * _FORM_I + s.b(_K, 3) + s.W(outer, 3) * Activation(w2 * _FORM_I + s.b(_K, 2)),
        w1 * s.W(i, 1) * s.x(0)
        + (w1 * _b1(i) + s.b(_K, 3))
        + w1 * s.UAT(i)
        + s.W(outer, 3) * Activation(w2 * s.W(i, 1) * s.x(0) + (w2 * _b1(i) + s.b(_K, 2)) + w2 * s.UAT(i)),
    ]
    return chain(s.x(_K), lines, [_HYPOTHESIS, s.equation_20])


def _after_32(outer: object) -> Outcome:
    """The settings below Eq. 32, all at once, in the form printed below them."""
    state = all_at_once(_SETTINGS)
    form = _S.W(_K, 1) * _S.x(0) + _b1(_K) + _S.W(outer, 3) * Activation(_S.W(_K, 2) * _S.x(0) + _S.b(_K, 2))
    return identity(_S.x(_K), form.xreplace(state) + _S.W(_K, 1) * _S.UAT(i), [_HYPOTHESIS, _S.equation_20])


def _serial(before: MatrixExpr) -> Outcome:
    return identity(_S.P(3), _S.W(3, 1) * before, _S.recursions)


def _letters(form: NormalForm) -> set[str]:
    def of(atom: Atom) -> set[str]:
        found: set[str] = set()
        for part in atom.parts:
            if isinstance(part, Parameter):
                found.add(part.letter)
            elif isinstance(part, NormalForm):
                found |= _letters(part)
        return found

    return {letter for word in form.words for atom in word for letter in of(atom)}


def _dynamic(depth: int) -> set[int]:
    """Return the layers j whose `W'_{j,3}`, carried to the last layer, contains an attention pattern."""
    rules = (*_S.recursions, *parameters("paper"))
    return {k for k in range(1, depth + 1) if "A'" in _letters(normal_form(_S.C(k, depth), rules))}


def _dynamic_parameters(stated: set[int], depth: int = 4) -> Outcome:
    found = _dynamic(depth)
    return Outcome(
        found == stated,
        f"of {depth} layers, the W'_{{j,3}} that contain attention are those with j in {sorted(found)}; stated:"
        f" {sorted(stated)}",
    )


def _terms_inside(stated: int, layer: int = 4) -> Outcome:
    """Compare the number of terms in `c_layer` with a stated one."""
    form = normal_form(_S.c(layer), _S.recursions)
    terms = sum(word[-1].kind == "activation" for word in form.words)
    return Outcome(terms == stated, f"c_{layer} contains the terms of {terms} layers; stated: {stated}")


_CLOSED = (
    r"\mathbf{x}_{i}=\mathbf{P}_{i}\mathbf{x}_{0}+\mathbf{q}_{i}+\sum_{j=1}^{i}\mathbf{C}_{j}^{(i)}"
    r"\sigma(\mathbf{B}_{j}\mathbf{x}_{0}+\mathbf{c}_{j})"
)
_RULES = (
    r"\mathbf{P}_{i+1}=\mathbf{W}'_{i+1,1}\mathbf{P}_{i},\;\mathbf{q}_{i+1}=\mathbf{W}'_{i+1,1}\mathbf{q}_{i}+\mathbf{b}'_{i+1,3},\;"
    r"\mathbf{B}_{i+1}=\mathbf{W}'_{i+1,2}\mathbf{P}_{i},\;\mathbf{C}_{j}^{(i+1)}=\mathbf{W}'_{i+1,1}\mathbf{C}_{j}^{(i)},\;"
    r"\mathbf{C}_{i}^{(i)}=\mathbf{W}'_{i,3}"
)
_BIAS = (
    r"\mathbf{c}_{j}=\mathbf{W}'_{j,2}\mathbf{q}_{j-1}+\mathbf{b}'_{j,2}+\mathbf{W}'_{j,2}\sum_{k=1}^{j-1}"
    r"\mathbf{C}_{k}^{(j-1)}\sigma(\mathbf{B}_{k}\mathbf{x}_{0}+\mathbf{c}_{k})"
)
_PRINTED_BIAS = (
    r"\mathbf{b}^{\prime}_{j,2}=(\mathbf{W}^{\prime}_{j,2}\mathbf{b}^{\prime}_{j-1,3}+\mathbf{b}^{\prime}_{j,2})"
    r"+\mathbf{W}^{\prime}_{j,2}\sum_{k=1}^{j-1}\mathbf{W}^{\prime}_{k,3}"
    r"\sigma(\mathbf{W}^{\prime}_{k,2}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{k,2})"
)
_PRINTED_RULES = (
    r"j=1,\ldots,i:\;\mathbf{W}^{\prime}_{j+1,1}=\mathbf{W}^{\prime}_{j+1,1}\mathbf{W}_{j,1},\;"
    r"\mathbf{b}^{\prime}_{j+1,3}=\mathbf{W}^{\prime}_{j+1,1}\mathbf{b}_{j,3}+\mathbf{b}^{\prime}_{j+1,3},\;"
    r"\mathbf{W}^{\prime}_{j+1,2}=\mathbf{W}^{\prime}_{j+1,2}\mathbf{W}_{j,1},\;"
    r"\mathbf{W}^{\prime}_{j,3}=\mathbf{W}^{\prime}_{j+1,1}\mathbf{W}^{\prime}_{j,3}"
)
_GENERAL = (
    r"\mathbf{x}^{\prime}_{i+1}=(\mathbf{W}^{\prime}_{i+1,1}\mathbf{x}^{\prime}_{i}+\mathbf{b}^{\prime}_{i+1,3})"
    r"+\mathbf{W}^{\prime}_{OUTER,3}\sigma(\mathbf{W}^{\prime}_{i+1,2}\mathbf{x}^{\prime}_{i}+\mathbf{b}^{\prime}_{i+1,2})"
)
_TWO_INDICES = "the symbols are the updated ones, in two indices"
_ORDER_REMARK = "One symbol stands for a parameter before and after its update; from depth 3 on W'_{j,3} lacks"
" factors in every reading."


def _update_rules(source: str, name: str) -> Claim:
    first, *others = READINGS
    return Claim(
        name,
        source,
        _PRINTED_RULES,
        lambda: reach(first),
        tuple((READINGS[key], partial(reach, key)) for key in others),
        remark=_ORDER_REMARK,
        corrected=_RULES,
        correction=recursions_proved,
    )


CLAIMS = (
    Claim(
        "11",
        "000",
        r"\mathbf{x}_{i+1}=(\mathbf{W}_{i+1,1}^{\prime}\mathbf{x}_{0}+\mathbf{b}_{i+1,1})"
        r"+\sum_{j=1}^{i+1}\mathbf{W}^{\prime}_{j,3}\sigma(\mathbf{W}^{\prime}_{j,2}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{j,2})",
        _own_symbols,
        ((f"{_TWO_INDICES}, and b_{{i+1,1}} is the updated b'_{{i+1,3}}", closed_form_proved),),
        corrected=_CLOSED,
        correction=closed_form_proved,
    ),
    _update_rules("000", "update rules below 11"),
    Claim(
        "12",
        "000",
        _PRINTED_BIAS,
        _bias_own,
        (
            (
                "on the right W'_{j,2} and b'_{j,2} are the layer's own, W'_{k,3} is carried to layer j − 1,"
                " all else is updated",
                bias_two_indices,
            ),
        ),
        corrected=_BIAS,
        correction=bias_two_indices,
    ),
    Claim(
        "bias and j-layer UAT",
        "000",
        r"\text{The term }\mathbf{b}^{\prime}_{j,2}\text{ is approximated by the }j\text{ layer UAT with"
        r" }\mathbf{x}_{0}\text{ as input}",
        lambda: _terms_inside(4),
        (("the UAT that stands inside layer j, which has the terms of j − 1 layers", lambda: _terms_inside(3)),),
        remark="It equals an affine map of what j − 1 layers compute, exactly.",
        corrected=r"\mathbf{c}_{j}=\mathbf{b}'_{j,2}+\mathbf{W}'_{j,2}(\mathbf{q}_{j-1}+\mathrm{UAT}^{R}_{j-1})",
        correction=bias_two_indices,
    ),
    Claim(
        "dynamic parameters",
        "000",
        r"\mathbf{W}^{\prime}_{j,3}\text{ for }i+1>j>1\text{ are dynamically adjusted based on the input}",
        lambda: _dynamic_parameters({2, 3}),
        remark="The first layer's W'_{1,3} is carried by later attention too.",
        corrected=r"\mathbf{W}'_{j,3}\text{ for }i+1>j\ge 1",
        correction=lambda: _dynamic_parameters({1, 2, 3}),
    ),
    Claim(
        "20",
        "000",
        r"\mathbf{x}^{\prime}_{i}=(\mathbf{W}^{\prime}_{i,1}\mathbf{x}^{\prime}_{i-1}+\mathbf{b}^{\prime}_{i,3})"
        r"+\mathbf{W}^{\prime}_{i,3}\sigma(\mathbf{W}^{\prime}_{i,2}\mathbf{x}^{\prime}_{i-1}+\mathbf{b}^{\prime}_{i,2})",
        lambda: adds(_S.x(i), _S.general_term(i)),
        definition=True,
        remark="Every block type is an instance of it.",
    ),
    Claim(
        "21",
        "000",
        r"\mathbf{x}^{\prime}_{1}=(\mathbf{W}^{\prime}_{1,1}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{1,3})"
        r"+\mathbf{W}^{\prime}_{1,3}\sigma(\mathbf{W}^{\prime}_{1,2}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{1,2})",
        lambda: identity(_S.x(1), _S.general_term(1), [_S.equation_20]),
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
        lambda: adds(_S.x(1), _uat_printed(_S, 1)),
        (("neurons and stream of one size, so that the shapes fit", _uat_with_equal_sizes),),
        remark="The second indices are one too low beside UAT_1 and UAT_2, which are printed right.",
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
        remark="Symbols of index i are those of the hypothesis, of index i + 1 the layer's own.",
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
        lambda: _settings(in_order([*_SETTINGS, _NEW_UAT])),
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
        "28",
        "000",
        r"MHA(\mathbf{x}_{i})\mapsto\mathbf{W}^{\prime}_{i,1}\mathbf{x}^{\prime}_{i}",
        pattern_moves,
        (("with the patterns held at their values on this input", held_pattern),),
        corrected=r"\mathbf{W}'_{i,1}=\sum_{k=1}^{h}\mathbf{H}_{k}\otimes"
        r"\left(\mathbf{S}_{k}\mathbf{W}_{V,k}\mathbf{S}_{k}^{T}\mathbf{W}_{O}\right)^{T}",
        correction=held_pattern,
    ),
    Claim(
        "29",
        "000",
        r"FFN(\mathbf{x}_{i})\mapsto\mathbf{W}^{\prime}_{i,3}\sigma(\mathbf{W}^{\prime}_{i,2}\mathbf{x}^{\prime}_{i}"
        r"+\mathbf{b}^{\prime}_{i,2})+\mathbf{b}^{\prime}_{i,3}",
        lambda: derived(mlp_derivation(), "the matrix-vector form of the MLP in both orientations"),
    ),
    Claim(
        "30",
        "000",
        r"\mathbf{x}^{\prime}_{i+1}=\mathbf{W}^{\prime}_{i+1,1}\mathbf{x}^{\prime}_{i}+\mathbf{W}^{\prime}_{i+1,3}"
        r"\sigma[\mathbf{W}^{\prime}_{i+1,2}(\mathbf{W}^{\prime}_{i+1,1}\mathbf{x}^{\prime}_{i})+\mathbf{b}^{\prime}_{i+1,2}]+\mathbf{b}^{\prime}_{i+1,3}"
        r"=\mathbf{W}^{\prime}_{i+1,1}\mathbf{x}^{\prime}_{i}+\mathbf{W}^{\prime}_{i+1,3}"
        r"\sigma(\mathbf{W}^{\prime}_{i+1,2}\mathbf{W}^{\prime}_{i+1,1}\mathbf{x}^{\prime}_{i}+\mathbf{b}^{\prime}_{i+1,2})+\mathbf{b}^{\prime}_{i+1,3}",
        _eq_30,
        remark="A block without attention residual and normalisation; blocks that have them are instances of"
        " Eq. 20 too.",
    ),
    Claim(
        "31",
        "000",
        _GENERAL.replace("OUTER", "i"),
        lambda: _eq_31(i),
        remark="With W'_{i+1,2} W'_{i+1,1} in the place of W'_{i+1,2}, as set above it; the index of W'_{i,3}"
        " is one too low.",
        corrected=_GENERAL.replace("OUTER", "i+1"),
        correction=lambda: _eq_31(_K),
    ),
    Claim(
        "32",
        "000",
        _GENERAL.replace("OUTER", "i")
        + r"=\cdots=[\mathbf{W}^{\prime}_{i+1,1}\mathbf{W}_{i,1}\mathbf{x}_{0}+(\mathbf{W}^{\prime}_{i+1,1}"
        r"\mathbf{b}_{i,1}"
        r"+\mathbf{b}^{\prime}_{i+1,3})]+\mathbf{W}^{\prime}_{i+1,1}UAT^{R}_{i}+\mathbf{W}^{\prime}_{i,3}\sigma\{\mathbf{W}^{\prime}_{i+1,2}"
        r"\mathbf{W}_{i,1}\mathbf{x}_{0}+(\mathbf{W}^{\prime}_{i+1,2}\mathbf{b}_{i,1}+\mathbf{b}^{\prime}_{i+1,2})"
        r"+\mathbf{W}^{\prime}_{i+1,2}UAT^{R}_{i}\}",
        lambda: _lines_32(i),
        remark="The lines follow from one another; the index of W'_{i,3} is one too low in all of them.",
        corrected=_GENERAL.replace("OUTER", "i+1") + r"=\cdots\;\text{with }\mathbf{W}'_{i+1,3}\text{ in every line}",
        correction=lambda: _lines_32(_K),
    ),
    Claim(
        "settings below 32",
        "000",
        r"\mathbf{x}^{\prime}_{i+1}=(\mathbf{W}^{\prime}_{i+1,1}\mathbf{x}_{0}+\mathbf{b}^{\prime}_{i+1,3})+UAT^{R}_{i}"
        r"+\mathbf{W}^{\prime}_{i,3}\sigma(\mathbf{W}^{\prime}_{i+1,2}\mathbf{x}_{0}+\mathbf{b}^{\prime}_{i+1,2})",
        lambda: _after_32(i),
        remark="Even with all symbols set at once, W'_{i,3} is the misprint of Eq. 31.",
        corrected=r"\mathbf{x}'_{i+1}=\mathbf{P}_{i+1}\mathbf{x}'_{0}+\mathbf{q}_{i+1}+\mathbf{W}'_{i+1,1}\mathrm{UAT}^{R}_{i}"
        r"+\mathbf{W}'_{i+1,3}\sigma(\mathbf{B}_{i+1}\mathbf{x}'_{0}+\mathbf{c}_{i+1})",
        correction=lambda: _after_32(_K),
    ),
    Claim(
        "33",
        "000",
        r"\mathbf{x}_{i+1}=(\mathbf{W}_{i+1,1}^{\prime}\mathbf{x}_{0}+\mathbf{b}_{i+1,3})"
        r"+\sum_{j=1}^{i+1}\mathbf{W}^{\prime}_{j,3}\sigma(\mathbf{W}^{\prime}_{j,2}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{j,2})",
        _own_symbols,
        ((_TWO_INDICES, closed_form_proved),),
        corrected=_CLOSED,
        correction=closed_form_proved,
    ),
    _update_rules("000", "update rules below 33"),
    Claim(
        "34",
        "000",
        _PRINTED_BIAS,
        _bias_own,
        (
            (
                "as Eq. 12; for j = 1, which the text adds here, b'_{0,3} is 0 and the sum is empty",
                bias_two_indices,
            ),
        ),
        corrected=_BIAS,
        correction=bias_two_indices,
    ),
    Claim(
        "serial computation",
        "000",
        r"\mathbf{W}^{\prime}_{3,1}=\mathbf{W}^{\prime}_{3,1}\mathbf{W}^{\prime}_{2,1}",
        lambda: _serial(_S.W(2, 1)),
        (("W'_{2,1} on the right is updated already", lambda: _serial(_S.P(2))),),
        corrected=r"\mathbf{P}_{3}=\mathbf{W}'_{3,1}\mathbf{P}_{2}",
        correction=recursions_proved,
    ),
)
