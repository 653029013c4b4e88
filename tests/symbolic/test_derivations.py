"""The derivations are proved, wrong ones are refused, and every explicit matrix is its Kronecker expression."""

from fractions import Fraction
from itertools import product

import pytest
from sympy import Identity, Integer, Symbol, ZeroMatrix

from symbolic.blocks.transformer import BLOCKS, transformer_block
from symbolic.catalogue import WHAT, derive
from symbolic.equality.collect import collect
from symbolic.equality.definition import Definition, nonnegative
from symbolic.equality.normal_form import equal, normal_form
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.operations import Diagonal
from symbolic.expressions.parameter import Parameter
from symbolic.theorems.closed_form import prove, recursions
from symbolic.theorems.consequences import collapse, contributions
from symbolic.theorems.lora import AdaptedStack, change_of, delta, first_order, lora
from symbolic.theorems.notation import in_the_papers_letters
from symbolic.theorems.residual_stack import ResidualStack, i, j
from symbolic.theorems.uat_sums import never_negative
from symbolic.theorems.unrolled import unroll
from symbolic.vectorisation.attention import attention, pattern
from symbolic.vectorisation.density import convolution, densities
from symbolic.vectorisation.entries import density, entries, matrix_of
from symbolic.vectorisation.linear import linear_on_features, linear_on_rows

S = ResidualStack()
K = i + 1


@pytest.mark.parametrize("what", WHAT)
def test_every_step_of_every_derivation_is_verified(what):
    for derivation in derive(what):
        assert derivation.verified, derivation
        assert derivation.steps


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8, 32])
def test_the_unrolled_form_equals_the_substituted_network(depth):
    assert unroll(depth).verified
    assert normal_form(S.x(depth), [S.equation_20]) == normal_form(S.form(depth), S.recursions)


@pytest.mark.parametrize("depth", [1, 4, 7])
def test_the_recursions_hold_together_at_every_depth(depth):
    assert recursions(depth=depth).verified


@pytest.mark.parametrize(("name", "gated"), list(product(BLOCKS, (False, True))))
def test_every_block_is_an_instance_of_equation_20_and_unrolls_at_every_depth(name, gated):
    block = transformer_block(name, gated=gated)
    assert block.residual_terms().verified
    assert block.prove().verified
    assert block.unroll(5).verified
    s = block.stack
    network, unrolled = normal_form(s.x(3), [block.layer]), normal_form(s.form(3), [*s.recursions, *block.parameters])
    assert network == unrolled


def replaced(index, right):
    rules = S.recursions
    wrong = Definition(rules[index].left, right, rules[index].variables, rules[index].where)
    return (*rules[:index], wrong, *rules[index + 1 :])


W1, W2, W3 = (S.W(K, role) for role in (1, 2, 3))
WRONG = {
    "P_without_its_factor": (1, S.P(i)),
    "P_in_swapped_order": (1, S.P(i) * W1),
    "P_with_the_index_of_the_layer_before": (1, S.W(i, 1) * S.P(i)),
    "q_with_a_wrong_sign": (3, W1 * S.q(i) - S.b(K, 3)),
    "q_without_the_path": (3, S.q(i) + S.b(K, 3)),
    "q_with_the_wrong_bias": (3, W1 * S.q(i) + S.b(i, 3)),
    "B_with_a_shifted_index": (4, W2 * S.P(K)),
    "B_without_the_path": (4, W2),
    "c_without_the_earlier_terms": (8, S.b(K, 2) + W2 * S.q(i)),
    "c_with_a_wrong_sign": (8, S.b(K, 2) - W2 * (S.q(i) + S.UAT(i))),
    "C_born_with_a_shifted_index": (5, S.W(i - 1, 3)),
    "C_not_carried": (6, S.C(j, i)),
    "C_carried_by_the_wrong_layer": (6, S.W(i, 1) * S.C(j, i)),
    "UAT_without_the_last_term": (7, IndexedSum(S.C(j, i) * S.activation(j), j, 1, i - 1)),
    "UAT_with_swapped_indices": (7, IndexedSum(S.C(j, i) * Activation(S.B(j) * S.x(0) - S.c(j)), j, 1, i)),
    "P_starts_at_zero": (0, ZeroMatrix(S.width, S.width)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_checker_refuses(name):
    proof = prove(recursions=replaced(*WRONG[name]))
    assert not proof.verified
    assert proof.steps[-1].verified is False or proof.steps[0].verified is False
    assert "NOT PROVED" in proof.verdict
    assert r"\overset{?}" in proof.latex()


@pytest.mark.parametrize("depth", [3, 5])
@pytest.mark.parametrize("name", WRONG)
def test_the_unrolled_form_refuses(name, depth, monkeypatch):
    monkeypatch.setattr(ResidualStack, "recursions", replaced(*WRONG[name]))
    derivation = unroll(depth)
    assert not derivation.verified
    of_the_form = [step for step in derivation.steps if step.left.letter == "x'"]
    assert any(step.verified is False for step in of_the_form)


@pytest.mark.parametrize(
    "rule",
    [
        Definition(S.P(3), 2 * Identity(S.width)),
        Definition(S.P(i + 3), ZeroMatrix(S.width, S.width), (i,)),
        Definition(S.C(1, 3), ZeroMatrix(S.width, S.neurons)),
        Definition(S.UAT(3), ZeroMatrix(S.width, 1)),
        Definition(S.C(j, i + 3), ZeroMatrix(S.width, S.neurons), (i, j), ((j, i),)),
    ],
    ids=lambda rule: str(rule.left),
)
def test_the_checker_refuses_a_rule_that_is_wrong_from_depth_3_on_only(rule):
    assert not prove(recursions=(rule, *S.recursions)).verified


def test_recursions_define_their_own_letters_for_every_layer():
    with pytest.raises(SymbolicError, match="nothing of the network"):
        prove(recursions=(*S.recursions, Definition(S.x(0), ZeroMatrix(S.width, 1))))
    with pytest.raises(SymbolicError, match="name its indices as variables"):
        prove(recursions=(S.recursions[0], Definition(S.P(K), W1 * S.P(i)), *S.recursions[2:]))
    with pytest.raises(SymbolicError, match="defined by itself"):
        prove(recursions=(Definition(S.P(i), S.P(K), (i,)), *S.recursions))


A = Parameter("A'", (K,), S.width, S.neurons)
V = Parameter("V'", (K,), S.neurons, S.width)
NO_PARAMETERS = (
    Definition(S.W(K, 1), ZeroMatrix(S.width, S.width), (i,)),
    Definition(S.W(K, 2), ZeroMatrix(S.neurons, S.width), (i,)),
    Definition(S.W(K, 3), ZeroMatrix(S.width, S.neurons), (i,)),
    Definition(S.b(K, 2), ZeroMatrix(S.neurons, 1), (i,)),
)
NOT_CLOSED = {
    "a layer in its own bias": {
        "layer": Definition(S.x(K), A * Activation(V * A * Activation(V * S.x(i))), (i,)),
        "parameters": (*NO_PARAMETERS, Definition(S.b(K, 3), A * Activation(V * A * Activation(V * S.x(i))), (i,))),
    },
    "a bias by way of another letter": {
        "layer": Definition(S.x(K), A * V * S.x(i), (i,)),
        "parameters": (
            *NO_PARAMETERS,
            Definition(S.b(K, 3), Parameter("y'", (K,), S.width, 1), (i,)),
            Definition(Parameter("y'", (K,), S.width, 1), A * V * S.x(i), (i,)),
        ),
    },
    "a gate that isn't held": {
        "layer": Definition(S.x(K), A * Diagonal(V * S.x(i)) * Activation(V * S.x(i)), (i,)),
        "parameters": (
            Definition(S.W(K, 1), ZeroMatrix(S.width, S.width), (i,)),
            Definition(S.b(K, 3), ZeroMatrix(S.width, 1), (i,)),
            Definition(S.W(K, 2), V, (i,)),
            Definition(S.b(K, 2), ZeroMatrix(S.neurons, 1), (i,)),
            Definition(S.W(K, 3), A * Diagonal(V * S.x(i)), (i,)),
        ),
    },
    "the stream in q": {"recursions": replaced(3, S.W(K, 1) * S.x(i) + S.b(K, 3))},
    "an activation in q": {"recursions": replaced(3, S.W(K, 3) * Activation(W2 * S.x(0)))},
    "the stream in the sum of terms": {"recursions": replaced(7, S.x(i) - S.P(i) * S.x(0) - S.q(i))},
}


@pytest.mark.parametrize("name", NOT_CLOSED)
def test_what_the_stream_flows_into_is_no_closed_form(name):
    with pytest.raises(SymbolicError, match=r"contains .*that is no closed form.*is held"):
        prove(**NOT_CLOSED[name])


def test_what_cant_be_sorted_by_a_vector_is_named():
    x = S.x(0)
    with pytest.raises(SymbolicError, match="isn't linear in|can't flow"):
        collect(S.P(1) * x * (x.T * x), x)
    gate, hidden = Parameter("V", (), S.neurons, S.width), Parameter("W", (), S.neurons, S.width)
    with pytest.raises(SymbolicError, match=r"has to be held.*diag\(held\('g', n\)\)"):
        collect(S.W(1, 3) * Diagonal(gate * x) * Activation(hidden * x), x)


def test_different_parameters_keep_different_letters_in_the_papers_notation():
    stack = ResidualStack(neurons=(S.neurons, S.neurons), couplings=((2, 1),))
    for derivation in (prove(stack), recursions(stack), unroll(2, stack)):
        theirs = in_the_papers_letters(derivation)
        pairs = [
            (ours, renamed)
            for before, after in zip(derivation.steps, theirs.steps, strict=True)
            for ours, renamed in ((before.left, after.left), (before.right, after.right))
            if ours is not None
        ]
        letters = [{p for side in sides for p in side.atoms(Parameter)} for sides in zip(*pairs, strict=True)]
        assert len(letters[0]) == len(letters[1])
        assert not {"P", "q", "B", "c", "C"} & {p.letter for p in letters[1]}


def test_a_recursion_that_runs_in_a_circle_is_named():
    with pytest.raises(SymbolicError, match=r"c.* is defined by itself"):
        prove(recursions=replaced(8, S.b(K, 2) + W2 * (S.q(i) + S.UAT(K))))


@pytest.mark.parametrize("name", [name for name in BLOCKS if name != "convolution"])
def test_the_checker_refuses_the_table_of_another_block(name):
    other = "parallel" if name != "parallel" else "pre-norm"
    assert not prove(layer=transformer_block(name).layer, parameters=transformer_block(other).parameters).verified


def test_entries_of_different_parameters_are_different_symbols():
    found = [entry for letter in ("W", "W'", "w", "w'") for entry in entries(Parameter(letter, (), 2, 2))]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("index", "bounds", "known"),
    [
        (i, {}, True),
        (i - 1, {}, False),
        (Symbol("n", integer=True), {}, False),
        (3 - j, {j: (Integer(1), Integer(3))}, True),
        (2 - j, {j: (Integer(1), Integer(3))}, False),
        (4 - j**2, {j: (Integer(1), Integer(3))}, False),
        (i * j - 2, {j: (Integer(1), Integer(3))}, False),
    ],
    ids=str,
)
def test_an_index_is_nonnegative_only_where_that_is_known(index, bounds, known):
    assert nonnegative(index, bounds) is known


def test_a_definition_is_not_put_in_where_an_index_is_no_linear_one():
    doubled, bounds = Definition(S.P(K), 2 * S.P(i), (i,)), {j: (Integer(1), Integer(2))}
    assert doubled.applied_to(S.P(5 - j), bounds) == 2 * S.P(4 - j)
    assert doubled.applied_to(S.P(4 - j**2), bounds) is True  # it is P_0 at j = 2


def test_a_definition_applies_only_where_its_condition_is_known():
    carried = S.recursions[6]
    assert equal(carried.applied_to(S.C(2, 5)), S.W(5, 1) * S.C(2, 4))
    assert carried.applied_to(S.C(5, 5)) is False
    assert carried.applied_to(S.C(j, K)) is True
    assert equal(carried.applied_to(S.C(j, K), {j: (Integer(1), i)}), W1 * S.C(j, i))
    assert carried.applied_to(S.P(1)) is False


def test_an_index_put_into_a_sum_isnt_captured_by_it():
    uat = S.recursions[7]
    put_in = uat.applied_to(S.UAT(j))
    other = uat.applied_to(S.UAT(Symbol("m", integer=True, nonnegative=True)))
    assert equal(put_in.xreplace({j: Symbol("m", integer=True, nonnegative=True)}), other)


def test_the_collapse_and_the_contributions_hold_for_numbers_too():
    stack = ResidualStack(width=6, neurons=4)
    assert collapse(stack).verified
    assert contributions(stack).verified


def test_lora_is_exact_and_its_first_order_is_the_differential():
    assert lora(depth=5).verified
    adapted = AdaptedStack()
    whole = normal_form(adapted.recursions[1].right)
    assert whole == normal_form((W1 + delta(W1)) * S.P(i))
    change = change_of(S.recursions[1])
    assert equal(change.first, delta(W1) * S.P(i) + W1 * delta(S.P(i)))
    assert equal(change.higher, delta(W1) * delta(S.P(i)))


def test_the_differential_of_an_activation_is_its_slope():
    z = Parameter("z", (), S.neurons, 1)
    assert equal(first_order(Activation(z), delta), Diagonal(Activation(z, 1)) * delta(z))


def test_the_reverse_triangle_inequality_isnt_an_equation():
    a, b = (Symbol(name, real=True) for name in "ab")
    assert never_negative(abs(a + b) - abs(abs(a) - abs(b)), a, b)
    assert not never_negative(abs(abs(a) - abs(b)) - abs(a + b), a, b)
    assert not never_negative(abs(a + b) - (abs(a) + abs(b)), a, b)


SIZES = [(1, 2, 1), (2, 2, 1), (2, 2, 2), (3, 2, 2), (2, 4, 2), (3, 4, 4)]


@pytest.mark.parametrize(("tokens", "features", "heads"), SIZES)
@pytest.mark.parametrize("sliced", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_read_off_entry_by_entry_is_its_kronecker_sum(tokens, features, heads, sliced, causal):
    found = attention(tokens, features, heads, sliced=sliced, causal=causal)
    assert all(explicit.agree for explicit in found)
    assert (found.output.matrix * found.value.matrix).expand() == found.whole.matrix
    expected = Fraction(tokens + 1, 2 * tokens) if causal else Fraction(1)
    assert found.whole.density == expected


@pytest.mark.parametrize(("tokens", "features"), [(2, 3), (3, 2), (4, 4)])
def test_the_densities_are_the_counted_ones(tokens, features):
    at = {Symbol("N", integer=True, positive=True): tokens, Symbol("M", integer=True, positive=True): features}
    counted = {
        "linear on rows, W x": linear_on_rows(tokens, features).density,
        "linear on features, x W": linear_on_features(tokens, features).density,
        "attention": attention(tokens, features, 1).whole.density,
        "attention, causal mask": attention(tokens, features, 1, causal=True).whole.density,
    }
    for name, found in counted.items():
        assert densities()[name].subs(at) == found, name


@pytest.mark.parametrize(("tokens", "kernel"), [(3, 1), (3, 3), (5, 3), (7, 5), (6, 5)])
def test_the_density_of_a_convolution_is_the_counted_one(tokens, kernel):
    found = convolution(tokens, kernel)
    assert found.agree
    at = {Symbol("N", integer=True, positive=True): tokens, Symbol("k", integer=True, positive=True): kernel}
    assert densities()["1D convolution"].subs(at) == found.density


def test_the_pattern_is_the_softmax_of_the_scores():
    from sympy import exp, sqrt

    held, x = pattern(2, 2), entries(Parameter("x", (), 2, 2))
    w = entries(Parameter("W", ("Q",), 2, 2)) * entries(Parameter("W", ("K",), 2, 2)).T
    score = (x * w * x.T)[1, 0] / sqrt(2)
    other = (x * w * x.T)[1, 1] / sqrt(2)
    assert (held[1, 0] - exp(score.expand()) / (exp(score.expand()) + exp(other.expand()))).together() == 0


def test_a_matrix_is_read_off_linear_maps_only():
    x = entries(Parameter("x", (), 2, 2))
    assert density(matrix_of(x.T, x)) == Fraction(1, 4)
    with pytest.raises(SymbolicError, match="isn't linear"):
        matrix_of(x * x, x)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: unroll(0), ("depth is 0", "1 or more")),
        (lambda: unroll(10**20), ("at most 100",)),
        (lambda: unroll(-2), ("depth is -2",)),
        (lambda: unroll(True), ("depth",)),
        (lambda: lora(depth=0), ("depth is 0",)),
        (lambda: transformer_block("mamba"), ("'mamba'", "pre-norm")),
        (lambda: derive("everything"), ("'everything'", "recursions")),
        (lambda: derive("lora", depth=3), ("no depth",)),
        (lambda: derive("lora", block="paper"), ("same for every block",)),
        (lambda: attention(2, 3, 2), ("3 features", "2 heads")),
        (lambda: attention(0, 2, 2.5), ("tokens = 0", "heads = 2.5")),
        (lambda: convolution(4, 2), ("width 2", "odd")),
        (lambda: entries(Parameter("W", (), S.width, 2)), ("d × 2", "numbers")),
    ],
)
def test_bad_input_is_named_with_the_remedy(call, words):
    with pytest.raises(SymbolicError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value


def test_latex_of_depth_32_is_short_lines_of_named_parts():
    lines = unroll(32).latex().splitlines()
    assert max(map(len, lines)) < 300
    assert sum(map(len, lines)) < 40_000
    assert len(lines) == len(unroll(4).latex().splitlines())
    assert any(r"\sum_{j=1}^{32}" in line for line in lines)


def test_a_derivation_shows_itself():
    derivation = recursions()
    assert derivation._repr_latex_().startswith("$$")
    assert derivation.title in str(derivation)
    checks = [step for step in derivation.steps if step.verified is not None]
    assert derivation.unicode().count("✓") == len(checks) == 7
    assert derivation.verdict == "7 of 7 checks hold, by induction, with 9 definitions"
    assert S.W(1, 1)._repr_latex_() == r"$\displaystyle \mathbf{W}'_{1,1}$"
    assert "P₂ x′₀ + q₂ + UAT₂" in str(S.form(2))
