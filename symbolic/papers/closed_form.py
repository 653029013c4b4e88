"""The closed form and its rules: Eq. 11, 12 and 28–34."""

from functools import partial
from typing import Any

from sympy import MatrixExpr

from symbolic.blocks.transformer import parameters
from symbolic.equality.normal_form import normal_form
from symbolic.equality.words import Atom, NormalForm
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter
from symbolic.papers.attention import attention_is_a_matrix
from symbolic.papers.checks import at_depths, chain, derived
from symbolic.papers.claim import Claim
from symbolic.papers.counterexample import Outcome, identity
from symbolic.papers.residual import (
    CLOSED,
    FORM_I,
    HYPOTHESIS,
    SETTINGS,
    K,
    S,
    closed_form_proved,
    recursions_proved,
    updated_b1,
)
from symbolic.papers.updates import DEPTHS, READINGS, all_at_once, closed_form, folded, paper_layer, reach
from symbolic.theorems.residual_stack import i, j
from symbolic.vectorisation.mlp import mlp_derivation


def _own_symbols() -> Outcome:
    """Eq. 33 with every symbol as a layer's own parameter; the printed rule for i = 0 is applied."""
    layer, fold = paper_layer(S), dict(folded(S, 1))
    return at_depths(lambda d: identity(S.x(d), closed_form(S, d).xreplace(fold), [layer]), DEPTHS)


def _bias_rule(k: Any, summand: MatrixExpr, before: MatrixExpr) -> MatrixExpr:
    return S.W(k, 2) * before + S.b(k, 2) + S.W(k, 2) * IndexedSum(summand, j, 1, k - 1)


def _bias_own() -> Outcome:
    """Eq. 12 with every symbol on the right as a layer's own parameter, against the bias of a network of Eq. 20."""
    own = S.W(j, 3) * Activation(S.W(j, 2) * S.x(0) + S.b(j, 2))

    def at(depth: int) -> Outcome:
        return identity(S.c(depth), _bias_rule(depth, own, S.b(depth - 1, 3)), S.recursions)

    return at_depths(at, DEPTHS[1:])


def bias_two_indices() -> Outcome:
    """Decide Eq. 12 with the meaning that the derivation gives every symbol, for a symbolic depth."""
    carried = S.C(j, i) * S.activation(j)
    return identity(S.c(K), _bias_rule(K, carried, S.q(i)), S.recursions)


def _eq_30() -> Outcome:
    y = S.W(K, 1) * S.x(i)
    folded = y + S.W(K, 3) * Activation(S.W(K, 2) * S.W(K, 1) * S.x(i) + S.b(K, 2)) + S.b(K, 3)
    return identity(paper_layer(S).right, folded)


def _eq_31(outer: object) -> Outcome:
    """Eq. 31 with `W'_{outer,3}`, its `W'_{i+1,2}` set to `W'_{i+1,2} W'_{i+1,1}`, against Eq. 30."""
    inner = S.W(K, 2) * S.W(K, 1)
    printed = S.W(K, 1) * S.x(i) + S.b(K, 3) + S.W(outer, 3) * Activation(inner * S.x(i) + S.b(K, 2))
    return identity(paper_layer(S).right, printed)


def _lines_32(outer: object) -> Outcome:
    """The lines of Eq. 32 with `W'_{outer,3}`, against Eq. 20 and the hypothesis."""
    s, w1, w2 = S, S.W(K, 1), S.W(K, 2)
    lines = [
        w1 * s.x(i) + s.b(K, 3) + s.W(outer, 3) * Activation(w2 * s.x(i) + s.b(K, 2)),
        w1 * FORM_I + s.b(K, 3) + s.W(outer, 3) * Activation(w2 * FORM_I + s.b(K, 2)),
        w1 * s.W(i, 1) * s.x(0)
        + (w1 * updated_b1(i) + s.b(K, 3))
        + w1 * s.UAT(i)
        + s.W(outer, 3) * Activation(w2 * s.W(i, 1) * s.x(0) + (w2 * updated_b1(i) + s.b(K, 2)) + w2 * s.UAT(i)),
    ]
    return chain(s.x(K), lines, [HYPOTHESIS, s.equation_20])


def _after_32(outer: object) -> Outcome:
    """The settings below Eq. 32, all at once, in the form printed below them."""
    state = all_at_once(SETTINGS)
    form = S.W(K, 1) * S.x(0) + updated_b1(K) + S.W(outer, 3) * Activation(S.W(K, 2) * S.x(0) + S.b(K, 2))
    return identity(S.x(K), form.xreplace(state) + S.W(K, 1) * S.UAT(i), [HYPOTHESIS, S.equation_20])


def _serial(before: MatrixExpr) -> Outcome:
    return identity(S.P(3), S.W(3, 1) * before, S.recursions)


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
    rules = (*S.recursions, *parameters("paper"))
    return {k for k in range(1, depth + 1) if "A'" in _letters(normal_form(S.C(k, depth), rules))}


def dynamic_parameters(stated: set[int], depth: int = 4) -> Outcome:
    """Decide which of the carried `W'_{j,3}` move with the input.

    Args:
        stated: the layers j that a claim names.
        depth: number of layers.
    """
    found = _dynamic(depth)
    return Outcome(
        found == stated,
        f"of {depth} layers, the W'_{{j,3}} that contain attention are those with j in {sorted(found)}; stated:"
        f" {sorted(stated)}",
    )


def _terms_inside(stated: int, layer: int = 4) -> Outcome:
    """Compare the number of terms in `c_layer` with a stated one."""
    form = normal_form(S.c(layer), S.recursions)
    terms = sum(word[-1].kind == "activation" for word in form.words)
    return Outcome(terms == stated, f"c_{layer} contains the terms of {terms} layers; stated: {stated}")


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
    r"i=0:\;\mathbf{W}^{\prime}_{1,2}=\mathbf{W}^{\prime}_{1,2}\mathbf{W}^{\prime}_{1,1};\quad j=1,\ldots,i:\;"
    r"\mathbf{W}^{\prime}_{j+1,1}=\mathbf{W}^{\prime}_{j+1,1}\mathbf{W}_{j,1},\;"
    r"\mathbf{b}^{\prime}_{j+1,3}=\mathbf{W}^{\prime}_{j+1,1}\mathbf{b}_{j,3}+\mathbf{b}^{\prime}_{j+1,3},\;"
    r"\mathbf{W}^{\prime}_{j+1,2}=\mathbf{W}^{\prime}_{j+1,2}\mathbf{W}_{j,1},\;"
    r"\mathbf{W}^{\prime}_{j,3}=\mathbf{W}^{\prime}_{j+1,1}\mathbf{W}^{\prime}_{j,3}"
)

_GENERAL = (
    r"\mathbf{x}^{\prime}_{i+1}=(\mathbf{W}^{\prime}_{i+1,1}\mathbf{x}^{\prime}_{i}+\mathbf{b}^{\prime}_{i+1,3})"
    r"+\mathbf{W}^{\prime}_{OUTER,3}\sigma(\mathbf{W}^{\prime}_{i+1,2}\mathbf{x}^{\prime}_{i}+\mathbf{b}^{\prime}_{i+1,2})"
)

_TWO_INDICES = "the symbols are the updated ones, in two indices"

_ORDER_REMARK = (
    "One symbol stands for a parameter before and after its update, and in no reading does W'_{1,3} meet W'_{3,1}"
    " once at depth"
    " 3: the index j + 1 in the last rule should be i + 1, for every new layer i + 1."
)


def _rules_per_layer() -> Outcome:
    """The corrected rules as a program, and as the recursions that they are."""
    program, proved = reach("per layer"), recursions_proved()
    return Outcome(program.holds and proved.holds, f"run for every new layer: {program.how}; {proved.how}")


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
        correction=_rules_per_layer,
    )


CLAIMS = (
    Claim(
        "11",
        "000",
        r"\mathbf{x}_{i+1}=(\mathbf{W}_{i+1,1}^{\prime}\mathbf{x}_{0}+\mathbf{b}_{i+1,1})"
        r"+\sum_{j=1}^{i+1}\mathbf{W}^{\prime}_{j,3}\sigma(\mathbf{W}^{\prime}_{j,2}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{j,2})",
        _own_symbols,
        ((f"{_TWO_INDICES}, and b_{{i+1,1}}, which no rule sets, is the updated b'_{{i+1,3}}", closed_form_proved),),
        corrected=CLOSED,
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
        r"\ldots\mathbf{W}^{\prime}_{j,3}\text{ for }i+1>j>1\text{ in layer }i"
        r"\text{ are dynamically adjusted based on the input}",
        lambda: dynamic_parameters({2, 3}),
        remark="The first layer's W'_{1,3} is carried by later attention too.",
        corrected=r"\mathbf{W}'_{j,3}\text{ for }i+1>j\ge 1",
        correction=lambda: dynamic_parameters({1, 2, 3}),
    ),
    Claim(
        "28",
        "000",
        r"MHA(\mathbf{x}_{i})\mapsto\mathbf{W}^{\prime}_{i,1}\mathbf{x}^{\prime}_{i}",
        attention_is_a_matrix,
        remark="W'_{i,1} moves with the input, as the paper says: with the patterns held it is that matrix.",
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
        remark="The index of W'_{i,3} is one too low; the sentence after it prints W'_{i+1,3}. W'_{i+1,2} W'_{i+1,1}"
        " stands in the"
        " place of W'_{i+1,2}, as set above it.",
        corrected=_GENERAL.replace("OUTER", "i+1"),
        correction=lambda: _eq_31(K),
    ),
    Claim(
        "32",
        "000",
        r"\begin{aligned}"
        + _GENERAL.replace("OUTER", "i").replace("=", "&=")
        + r"=\cdots\\&=[\mathbf{W}^{\prime}_{i+1,1}\mathbf{W}_{i,1}\mathbf{x}_{0}+(\mathbf{W}^{\prime}_{i+1,1}"
        r"\mathbf{b}_{i,1}"
        r"+\mathbf{b}^{\prime}_{i+1,3})]+\mathbf{W}^{\prime}_{i+1,1}UAT^{R}_{i}+\mathbf{W}^{\prime}_{i,3}\sigma\{\mathbf{W}^{\prime}_{i+1,2}"
        r"\mathbf{W}_{i,1}\mathbf{x}_{0}+(\mathbf{W}^{\prime}_{i+1,2}\mathbf{b}_{i,1}+\mathbf{b}^{\prime}_{i+1,2})"
        r"+\mathbf{W}^{\prime}_{i+1,2}UAT^{R}_{i}\}\end{aligned}",
        lambda: _lines_32(i),
        remark="The lines follow from one another and from the hypothesis of B.2; the index of W'_{i,3} is one too"
        " low in all of them. B.3 prints its hypothesis with b_{i,3} for b_{i,1}, and the last line has one"
        " bracket too many.",
        corrected=_GENERAL.replace("OUTER", "i+1") + r"=\cdots\;\text{with }\mathbf{W}'_{i+1,3}\text{ in every line}",
        correction=lambda: _lines_32(K),
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
        correction=lambda: _after_32(K),
    ),
    Claim(
        "33",
        "000",
        r"\mathbf{x}_{i+1}=(\mathbf{W}_{i+1,1}^{\prime}\mathbf{x}_{0}+\mathbf{b}_{i+1,3})"
        r"+\sum_{j=1}^{i+1}\mathbf{W}^{\prime}_{j,3}\sigma(\mathbf{W}^{\prime}_{j,2}\mathbf{x}^{\prime}_{0}+\mathbf{b}^{\prime}_{j,2})",
        _own_symbols,
        ((_TWO_INDICES, closed_form_proved),),
        corrected=CLOSED,
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
        lambda: _serial(S.W(2, 1)),
        (("W'_{2,1} on the right is updated already", lambda: _serial(S.P(2))),),
        corrected=r"\mathbf{P}_{3}=\mathbf{W}'_{3,1}\mathbf{P}_{2}",
        correction=recursions_proved,
    ),
)
