"""Decide what versions 001 and 003 state differently: density, patterns, pruning, and the closed form."""

import re
from dataclasses import replace
from fractions import Fraction
from functools import partial

from sympy import Integer

from symbolic.audit import heads
from symbolic.audit.attention import attention_moves, held_pattern
from symbolic.audit.checks import both, derived, every, expect, independent, lines_agree, row_agrees
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.closed_form import bias_in_two_indices, bias_two_indices, dynamic_parameters
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.diamond import PRIMED
from symbolic.audit.formula import read
from symbolic.audit.letters import Name, index, table
from symbolic.audit.linear import ROWS
from symbolic.audit.magnitude import S1, S2
from symbolic.audit.notation import EARLIER, S
from symbolic.audit.pruning import concludes, pruning_bound, small_set
from symbolic.audit.residual import K, closed, eq_31, two_indices
from symbolic.audit.theory import cited
from symbolic.audit.updates import updated
from symbolic.equality.normal_form import normal_form
from symbolic.expressions.operations import Vec
from symbolic.expressions.parameter import Parameter, Variable, parameters_replaced
from symbolic.theorems.closed_form import prove
from symbolic.theorems.residual_stack import i, j
from symbolic.vectorisation.attention import pattern
from symbolic.vectorisation.entries import density, entries
from symbolic.vectorisation.linear import linear_on_rows

_ARRAY = re.compile(r"\\left\(\\begin\{array\}\{ccc\}(.*?)\\end\{array\}\\right\)")

_ENTRIES = table(
    {f"w_1,{k}": entries(Parameter("W", (), 3, 3))[0, n] for n, k in enumerate((1, 2, index("n")))}, functions={}
)


def _printed_columns(latex: str) -> list[list]:
    """Return the two printed columns of the matrix in Eq. 15 for N = M = 3, where the dots stand for nothing."""
    rows = [row.split("&")[:2] for row in _ARRAY.search(latex)[1].split(r"\\") if r"\vdots" not in row]  # type: ignore[index]
    return [[read(cell, _ENTRIES)[0].sides[0] for cell in column] for column in zip(*rows, strict=True)]


_DATA, _RESULT = (Variable(letter, (), heads.N, heads.M) for letter in "xy")

_LINEAR = table({"W": ROWS, "x": _DATA, "x'": Vec(_DATA), "y": _RESULT, "y'": Vec(_RESULT), "W'": PRIMED})


def _columns_as_printed(claim: Claim) -> Outcome:
    """Compare the printed columns with the matrix, and decide the equation around them."""
    on_rows = linear_on_rows(3, 3)
    columns = [list(on_rows.matrix.T[:, column]) for column in (0, 1)]
    (around,) = read(_ARRAY.sub(r"\\mathbf{W}'", claim.printed), _LINEAR)
    value, y, image, y_vector = around.related("=", r"\to", "=")
    expect(y_vector == Vec(y) and isinstance(y, Parameter), "y and y'")
    good = columns == _printed_columns(claim.printed) and on_rows.agree
    return both(
        identity(Vec(value), image),
        Outcome(good, "its first columns are the printed ones, N = M = 3, and W' fits", "N = M = 3"),
    )


def _share(claim: Claim) -> Outcome:
    """Compare a stated share with the counted one of entries that aren't zero."""
    sizes = ((2, 2), (2, 3), (3, 4))
    good = all(
        claim.row.sides[0].subs(heads.M, m) == density(linear_on_rows(n, m).matrix) == Fraction(1, m) for n, m in sizes
    )
    counted = f"(N, M) = {', '.join(map(str, sizes))}"
    return Outcome(good, "the share of entries that aren't zero is 1/M, counted at three sizes", counted)


def _sparsity(claim: Claim) -> Outcome:
    zeros = 1 - density(linear_on_rows(2, 3).matrix)
    stated = claim.row.equated[0].subs(heads.M, 3)
    return Outcome(zeros == stated, f"for M = 3 the share of zeros is {zeros}; stated: {stated}")


def _wrong_set(claim: Claim) -> Outcome:
    """Compute a counterexample: S_1 = 0 is small and S_2 = f = 10, so without Λ_2 the error is 10."""
    small_set(claim.row, S1)
    kept, removed, f = 0, 10, 10
    before, after = abs(kept + removed - f), abs(kept - f)
    return Outcome(
        after <= before,
        f"counterexample, S_1 = {kept}, S_2 = f = {f}: removing Λ_2 takes the error from {before} to {after}",
    )


def _right_set(claim: Claim) -> Outcome:
    small_set(claim.row, S2)
    return pruning_bound()


_HEADS_001 = table(
    {
        "H°": Vec(heads.JOINED * heads.OUTPUT),
        "W'_HVO": heads.WHOLE.symbol(Name("W", ("HVO",), (), True)),
        "x_i": heads.X,
    }
)


def _pattern_is_parameter(claim: Claim) -> Outcome:
    held, x = pattern(2, 2), entries(Parameter("x", (), 2, 2))
    common = sorted(map(str, held.free_symbols & x.free_symbols))
    good = [str(s.sides[0]) for s in claim.says] == ["Hᵢ", "W[Q,i]", "W[K,i]"]
    expect(good, "H_i, W_{Qi} and W_{Ki}")
    return Outcome(not common, f"its entries contain {', '.join(common)}")


def _held_as_printed(claim: Claim) -> Outcome:
    name, line = claim.row.equated
    return both(identity(name, line, [heads.HELD_PATTERN, heads.W_QK]), held_pattern())


def _two_sums(claim: Claim) -> Outcome:
    """Compute a counterexample with terms 0 and 10, N_1 = N_2 = 1, f = 10 and ε = 1: both sums are the first term."""
    terms, f, epsilon = (0, 10), 10, 1
    premise = abs(sum(terms) - f) < epsilon
    claimed = abs(terms[0] - f) < epsilon + abs(terms[0])
    return Outcome(
        not premise or claimed,
        "counterexample, terms 0 and 10, N_1 = N_2 = 1, f = 10, ε = 1: |0 + 10 − f| < ε, and"
        f" {abs(terms[0] - f)} < ε + 0 is wrong",
    )


def _renumbered(claim: Claim) -> Outcome:
    """Decide the inequality with the sums up to N_1 and N_2 read as the sums over Λ_1 and Λ_2."""
    sets = re.sub(r"\\sum_\{j=1\}\^\{N_\{(\d)\}\}", r"\\sum_{j\\in\\Lambda_{\1}}", claim.printed)
    return concludes(replace(claim, printed=sets))


def _fixed_biases(claim: Claim) -> Outcome:
    """Decide that the layer is Eq. 20, and that `c_2` contains the input where Eq. 1 has fixed biases."""
    layer = lines_agree(claim.row, [S.equation_20])
    letters = normal_form(S.c(2), S.recursions).expression().atoms(Parameter)
    expect(bool(layer.holds), "the residual term")
    return Outcome(
        S.x(0) not in letters,
        "from depth 2 on the bias inside the activation, c_2, contains x'_0, and P x'_0 + q is added",
    )


def _dynamic_biases(claim: Claim) -> Outcome:
    expect(bool(lines_agree(claim.row, [S.equation_20]).holds), "the residual term")
    return derived(prove(), "the closed form at every depth")


def _sum_of_the_next(claim: Claim, *, settings: bool) -> Outcome:
    """Decide the sum of terms of layer i + 1 with updated symbols, with or without the setting of `UAT_i` before it."""
    setting, line = claim.says
    expect(setting.equated[0] == S.UAT(i), "a setting of UAT_i")
    left, right = line.equated
    meant = parameters_replaced(right, updated(K))
    return identity(left, meant.xreplace(dict([setting.equated])) if settings else meant, S.recursions)


def _own_bias(claim: Claim) -> Outcome:
    left, right = (side.xreplace({j: Integer(3)}) for side in claim.row.equated)
    expect(left == S.b(3, 2), "the bias b'_{j,2}")
    return identity(S.c(3), right, S.recursions)


CHECKS_001 = {
    "2": Checks(cited),
    "8": Checks(every(row_agrees(), independent(attention_moves)), notation=_HEADS_001),
    "H as a parameter": Checks(_pattern_is_parameter, (independent(held_pattern),), _held_as_printed, heads.ATTENTION),
    "12": Checks(_two_sums, (_renumbered,), concludes, EARLIER),
    "15": Checks(_columns_as_printed, notation=_LINEAR),
    "sparsity of Linear": Checks(_sparsity, (_share,), _share, heads.WHOLE),
    "premise of pruning": Checks(_wrong_set, (), _right_set, EARLIER),
}

CHECKS_003 = {
    "Lemma 2": Checks(_fixed_biases, (_dynamic_biases,), closed),
    "general term in C.2": Checks(eq_31, correction=eq_31),
    "UAT of layer i+1": Checks(
        partial(_sum_of_the_next, settings=False), (partial(_sum_of_the_next, settings=True),), two_indices
    ),
    "bias below 11": Checks(_own_bias, (bias_two_indices,), bias_in_two_indices),
    "dynamic parameters": Checks(partial(dynamic_parameters, own=True), (dynamic_parameters,), dynamic_parameters),
}
