"""`verify` refuses a pattern that stands still, a mark that nobody claims, and arrays of another shape."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from helpers import numbers

import duat_jax as duat
from symbolic import Block, activation, diag, held, identity, matrix, ones, sizes, summed, vector
from symbolic.errors import NumbersDiffer, ShapeMismatch, SymbolicError

N, M, K = 3, 4, 5
X = jnp.array(numbers(N, M))
WEIGHTS = {letter: jnp.array(numbers(M, M, key=k)) for k, letter in enumerate("VWU", 1)}


def softmax(x):
    return jax.nn.softmax(x @ x.T)


def attention(x, name="H"):
    return x + duat.hold(softmax(x), name) @ x @ WEIGHTS["V"]


def block_with(pattern):
    return Block(lambda x: x + pattern * x * matrix("V", M, M), (N, M), name="attention")


def test_a_pattern_that_stands_still_in_the_block_is_refused_whatever_its_mark_is_called():
    still = block_with(matrix("H", N, N))
    for name in ("H", "pattern"):
        with pytest.raises(NumbersDiffer, match=f"{name} is held in the function"):
            still.verify(partial(attention, name=name), X, WEIGHTS | {"H": softmax(X)}, {})


def test_a_held_value_that_no_letter_claims_is_refused():
    def gated(x):
        return duat.hold(1 / (1 + x[:, :1] ** 2), "r") * attention(x)

    block = Block(lambda x: diag(vector("d", N)) * (x + held("H", N, N) * x * matrix("V", M, M)), (N, M))
    with pytest.raises(NumbersDiffer, match="r is held in the function and no held letter .* held\\('r', …\\)"):
        block.verify(gated, X, WEIGHTS | {"d": 1 / (1 + X[:, 0] ** 2)}, {})


def test_a_held_letter_is_no_array_at_one_input():
    with pytest.raises(SymbolicError, match=r"H moves with the input, .* \{'H': lambda held: …\}"):
        block_with(held("H", N, N)).verify(partial(attention, name="pattern"), X, WEIGHTS | {"H": softmax(X)}, {})


def test_a_held_letter_is_a_function_of_what_is_held():
    def scores(x):
        s = duat.hold(x @ x.T, "scores")
        return x + jax.nn.softmax(s) @ x @ WEIGHTS["V"]

    block = block_with(held("H", N, N))
    assert block.verify([scores, scores], X, WEIGHTS | {"H": lambda held: jax.nn.softmax(held["scores"])}, {}).holds
    with pytest.raises(NumbersDiffer, match="scores is held"):
        block.verify(scores, X, WEIGHTS | {"H": lambda held: softmax(X)}, {})
    with pytest.raises(SymbolicError, match="nothing called score is held .* scores"):
        block.verify(scores, X, WEIGHTS | {"H": lambda held: held["score"]}, {})


def test_what_is_right_at_one_input_alone_is_refused_at_the_second():
    """A function whose held value feeds one letter and moves another one that stands still in the block."""

    def layer(x):
        pattern = duat.hold(softmax(x), "H")
        return x + pattern @ x @ WEIGHTS["V"] + pattern @ pattern @ x @ WEIGHTS["W"]

    fixed = softmax(X) @ softmax(X)
    still, moves = (
        Block(lambda x, two=two: x + held("H", N, N) * x * matrix("V", M, M) + two * x * matrix("W", M, M), (N, M))
        for two in (matrix("S", N, N), held("H", N, N) ** 2)
    )
    assert moves.verify(layer, X, WEIGHTS, {}).holds
    with pytest.raises(NumbersDiffer, match="✗ .* at a second input"):
        still.verify(layer, X, WEIGHTS | {"S": fixed}, {})


def test_two_marks_of_one_name_are_told():
    def twice(x):
        return attention(attention(x))

    pair = held("H", N, N)
    block = Block(lambda x: (identity(N) + pair) * x * matrix("V", M, M), (N, M))
    with pytest.raises(SymbolicError, match="H is held more than once"):
        block.verify(twice, X, WEIGHTS, {})


def test_a_block_that_was_read_is_read_again_at_the_second_input():
    block = Block.from_function(attention, X)
    assert {row.at_second_input for row in block.verify(attention, X, block.values, block.functions).rows} == {
        False,
        True,
    }
    with pytest.raises(SymbolicError, match=r"block\.values"):
        block.verify(attention, X, dict(block.values), block.functions)


def test_sizes_may_be_symbols():
    tokens, features, neurons, heads = sizes("N M K n")
    f, bias = matrix("F", features, neurons), ones(tokens) * vector("f", neurons).T
    block = Block(
        lambda x: (
            x
            + summed(lambda h: held("H", tokens, tokens, h) * x * matrix("V", features, features, h), 1, heads)
            + activation(x * f + bias) * matrix("G", neurons, features) / features
        ),
        (tokens, features),
        name="any size",
    )
    weights = {"F": numbers(M, K, key=5), "f": numbers(K, key=6), "G": numbers(K, M, key=7)}
    weights |= {"V[1]": WEIGHTS["V"], "V[2]": WEIGHTS["W"]}

    def layer(x):
        first, second = (duat.hold(softmax(sign * x), f"H[{h}]") for h, sign in ((1, 1), (2, -2)))
        inside = x @ weights["F"] + duat.offset(jnp.asarray(weights["f"]), "f")
        attended = first @ x @ weights["V[1]"] + second @ x @ weights["V[2]"]
        return x + attended + duat.term(jnp.tanh, inside, "mlp") @ weights["G"] / M

    assert block.prove().verified
    assert block.verify([layer, layer], X, weights, jnp.tanh, sizes={heads: 2}).holds
    with pytest.raises(SymbolicError, match=r"n is in no shape: give a number, sizes=\{n: 2\}"):
        block.verify(layer, X, weights, jnp.tanh)
    with pytest.raises(ShapeMismatch, match="F is 5 × 4, expected 4 × 5"):
        block.verify(layer, X, weights | {"F": weights["F"].T}, jnp.tanh, sizes={heads: 2})


def test_every_array_of_another_shape_is_named_with_what_was_expected():
    block = Block(lambda x: x + activation(x * matrix("F", M, K)) * matrix("G", K, M), (N, M))
    f, g = numbers(M, K), numbers(K, M)

    def layer(x):
        return x + duat.term(jnp.tanh, x @ f, "mlp") @ g

    with pytest.raises(ShapeMismatch, match="F is 5 × 4, expected 4 × 5; G is 4 × 5, expected 5 × 4"):
        block.verify(layer, X, {"F": f.T, "G": g.T}, jnp.tanh)
    with pytest.raises(ShapeMismatch, match="x is 4 × 3, expected 3 × 4"):
        block.verify(layer, X.T, {"F": f, "G": g}, jnp.tanh)
