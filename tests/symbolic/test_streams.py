"""Several streams have one closed form: it is proved, wrong recursions are refused, and layers compute the same."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Identity, ZeroMatrix

from symbolic.catalogue import derive
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal
from symbolic.errors import SymbolicError
from symbolic.evaluation.bridge import name_of, parameters_of, to_jax
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import parameters_replaced
from symbolic.theorems.residual_stack import ResidualStack, i, j
from symbolic.theorems.stream_stack import StreamStack
from symbolic.theorems.streams import streams

S = StreamStack()
K = i + 1


@pytest.mark.parametrize(("number", "terms"), [(1, 1), (1, 3), (2, 2), (2, 3), (3, 1), (3, 3), (2, 0)])
def test_the_form_of_several_streams_is_proved_for_every_depth(number, terms):
    proof = streams(StreamStack.of(number, terms))
    assert proof.proved and len(proof.inductions) == number
    assert not any(proof.conditions)
    assert derive("streams", streams=number, terms=terms) == (proof,)


def test_a_number_of_streams_or_terms_that_has_no_meaning_is_refused():
    for numbers in ({"streams": 0}, {"streams": 7}, {"terms": -1}, {"terms": 7}, {"streams": True}):
        ((name, number),) = numbers.items()
        with pytest.raises(SymbolicError, match=f"the number of {name} is {number}: give a number from"):
            derive("streams", **numbers)
    with pytest.raises(SymbolicError, match="lora has no number of terms: leave it out, or ask for streams"):
        derive("lora", terms=2)


def test_a_matrix_that_is_absent_is_zero():
    without = StreamStack(absent=(("U", 1, 2), ("F", 1, 2), ("G", 2, 1)))
    assert streams(without).proved
    assert not any(f"U{index}" in str(streams(without)) for index in ("ᵢ₊₁,₁,₂", "ᵢ,₁,₂"))


def as_equation_20(stack):
    """Return the stack of Eq. 20 for a stack of one stream, and a translation of symbols into its own."""
    one = ResidualStack(*stack.widths, stack.neurons, stack.functions, stack.couplings)
    own = {
        "x'": lambda k, s: one.x(k), "U": lambda k, s, r: one.W(k, 1), "F": lambda k, t, r: one.W(k, 2, t),
        "G": lambda k, s, t: one.W(k, 3, t), "K": one.coupling, "b": lambda k, s: one.b(k, 3),
        "f": lambda k, t: one.b(k, 2, t), "P": lambda k, s, r: one.P(k), "q": lambda k, s: one.q(k),
        "B": lambda k, t, r: one.B(k, t), "c": one.c, "UAT": lambda k, s: one.UAT(k), "h": one.activation,
        "a": lambda k, t: one.activated(one.pre_activation(k, t), k, t),
    }  # fmt: skip

    def put(parameter):
        lower = [int(each) if each.is_Integer else each for each in parameter.lower]
        if parameter.letter == "C":
            return one.C(lower[0], *parameter.upper, lower[2])
        return own[parameter.letter](*lower)

    return one, lambda expression: parameters_replaced(expression, put)


@pytest.mark.parametrize("terms", [0, 1, 3])
def test_one_stream_has_the_recursions_of_equation_20_at_every_depth(terms):
    stack = StreamStack.of(1, terms)
    one, translated = as_equation_20(stack)
    assert equal(translated(stack.layer[-1].right), one.general_term(K))
    expected = {rule.left: rule for rule in one.recursions}
    for rule in stack.recursions:
        left, right = translated(rule.left), translated(rule.right)
        if rule.left.letter == "h":  # which Eq. 20 has no letter for
            assert equal(left, right)
        else:
            theirs = expected.pop(left)
            assert equal(right, theirs.right) and (rule.variables, rule.where) == (theirs.variables, theirs.where)
    assert not expected


def replaced(left, right):
    """Return the recursions with another right side for one of them."""
    rules = S.recursions
    assert any(rule.left == left for rule in rules)
    return tuple(Definition(r.left, right, r.variables, r.where) if r.left == left else r for r in rules)


WRONG = {
    "P reads its own stream alone": (S.P(K, 1, 2), S.U(K, 1, 1) * S.P(i, 1, 2)),
    "P with the input of the stream that it reads": (
        S.P(K, 1, 2),
        S.U(K, 1, 1) * S.P(i, 1, 2) + S.U(K, 1, 2) * (S.P(i, 2, 2) + S.P(i, 2, 1) * S.U(K, 1, 2)),
    ),
    "P starts at zero": (S.P(0, 2, 2), ZeroMatrix(S.widths[1], S.widths[1])),
    "q without the biases of the other stream": (S.q(K, 1), S.U(K, 1, 1) * S.q(i, 1) + S.b(K, 1)),
    "B after the layer's own mixing": (S.B(K, 1, 2), S.F(K, 1, 1) * S.P(K, 1, 2) + S.F(K, 1, 2) * S.P(K, 2, 2)),
    "B reads one stream": (S.B(K, 2, 1), S.F(K, 2, 1) * S.P(i, 1, 1)),
    "c without the terms of the other stream": (
        S.c(K, 1),
        S.f(K, 1) + S.F(K, 1, 1) * (S.q(i, 1) + S.UAT(i, 1)) + S.F(K, 1, 2) * S.q(i, 2),
    ),
    "c without the coupling": (
        S.c(K, 2),
        S.f(K, 2) + S.F(K, 2, 1) * (S.q(i, 1) + S.UAT(i, 1)) + S.F(K, 2, 2) * (S.q(i, 2) + S.UAT(i, 2)),
    ),
    "C is carried by its own stream alone": (S.C(j, K, 1, 2), S.U(K, 1, 1) * S.C(j, i, 1, 2)),
    "C is born a layer late": (S.C(i, i, 2, 1), S.G(i - 1, 2, 1)),
    "UAT without one term": (S.UAT(i, 2), IndexedSum(S.C(j, i, 2, 2) * S.h(j, 2), j, 1, i)),
    "h without one stream of the input": (S.h(K, 1), S.activated(S.B(K, 1, 1) * S.x(0, 1) + S.c(K, 1), 1)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_recursion_of_several_streams_is_refused(name):
    proof = streams(recursions=replaced(*WRONG[name]))
    assert not proof.verified and "NOT PROVED" in proof.verdict


@pytest.mark.parametrize(
    "rule",
    [
        Definition(S.P(3, 1, 2), ZeroMatrix(*S.P(3, 1, 2).shape)),
        Definition(S.P(i + 3, 1, 1), 2 * Identity(S.widths[0]), (i,)),
        Definition(S.h(3, 2), ZeroMatrix(S.neurons[1], 1)),
    ],
    ids=lambda rule: str(rule.left),
)
def test_a_recursion_of_several_streams_that_is_wrong_from_layer_3_on_only_is_refused(rule):
    assert not streams(recursions=(rule, *S.recursions)).verified


def test_recursions_of_several_streams_define_their_own_letters_for_every_layer():
    with pytest.raises(SymbolicError, match="nothing of the network"):
        streams(recursions=(*S.recursions, Definition(S.x(0, 1), ZeroMatrix(S.widths[0], 1))))
    with pytest.raises(SymbolicError, match="name its indices as variables"):
        streams(recursions=(Definition(S.P(K, 1, 1), S.U(K, 1, 1)), *S.recursions))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"widths": (2, 0)}, "a size is 0: give positive integers"),
        ({"widths": ()}, "no stream: give the width"),
        ({"functions": ("tanh",)}, "1 functions for 2 terms"),
        ({"couplings": ((1, 2),)}, "term 2 can't flow into term 1"),
        ({"couplings": ((3, 1),)}, "term 1 can't flow into term 3"),
    ],
)
def test_a_stack_of_streams_that_has_no_meaning_is_refused(arguments, words):
    with pytest.raises(SymbolicError, match=words):
        StreamStack(**arguments)


FUNCTIONS = {"tanh": jnp.tanh, "cos": jnp.cos, "softplus": jax.nn.softplus}  # two of them aren't 0 at 0


def layers(stack, arrays, depth):
    """Compute the streams after each layer as the layers do, in NumPy."""
    put = {name: np.asarray(array) for name, array in arrays.items()}
    now = [put[f"x'[0,{s}]"] for s in stack.streams]
    for k in range(1, depth + 1):
        activations: list[np.ndarray] = []
        for t in stack.terms:
            z = put[f"f[{k},{t}]"] + sum(put[f"F[{k},{t},{r}]"] @ now[r - 1] for r in stack.streams)
            z = z + sum(put[f"K[{k},{t},{u}]"] @ activations[u - 1] for u in stack.earlier(t))
            activations.append(np.asarray(FUNCTIONS[stack.functions[t - 1]](z)))
        now = [
            put[f"b[{k},{s}]"]
            + sum(put[f"U[{k},{s},{r}]"] @ now[r - 1] for r in stack.streams)
            + sum(put[f"G[{k},{s},{t}]"] @ activations[t - 1] for t in stack.terms)
            for s in stack.streams
        ]
    return now


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_the_form_of_two_streams_is_what_the_layers_compute(depth):
    stack = StreamStack((5, 3), (4, 2, 6), ((2, 1), (3, 1), (3, 2)), tuple(FUNCTIONS))
    forms = {str(s): stack.form(depth, s) for s in stack.streams}
    needed = {
        name_of(p): p for form in forms.values() for p in parameters_of(form, definitions=stack.recursions).values()
    }
    rng = np.random.default_rng(depth)
    arrays = {name: jnp.array(rng.normal(size=p.shape) / 2) for name, p in needed.items()}
    computed = to_jax(forms, FUNCTIONS, stack.recursions)(arrays)
    expected = {str(s): value[:, 0] for s, value in enumerate(layers(stack, arrays, depth), 1)}
    chex.assert_trees_all_close(computed, expected, rtol=1e-12, atol=1e-12)
