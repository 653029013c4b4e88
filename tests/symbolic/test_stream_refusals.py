"""Bad input of blocks of several streams: one line each, which says what is wrong and what to give."""

import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Float, Rational, Symbol, nan, oo

import duat_jax as duat
from symbolic import (
    Block,
    ShapeMismatch,
    StreamBlock,
    SymbolicError,
    activation,
    held,
    identity,
    matrix,
    ones,
    sizes,
    vector,
)
from symbolic.theorems.residual_stack import ResidualStack
from symbolic.theorems.stream_stack import StreamStack

A, SHAPE = matrix("A", 2, 2), {"x": (2, 2), "m": (2, 2)}
N = sizes("N")[0]


def refusal(call, *args, **keywords):
    with pytest.raises(SymbolicError) as refused:
        call(*args, **keywords)
    message = str(refused.value)
    assert "\n" not in message and len(message) < 350
    return message


NO_SIZES = {
    "2.0": 2.0, "2.5": 2.5, "0": 0, "-1": -1, "a text": "N", "True": True, "None": None, "1j": 1j, "nan": float("nan"),
    "inf": float("inf"), "a list": [2], "NumPy's 2.0": np.float64(2), "sympy's 2.0": Float(2), "1/2": Rational(1, 2),
    "sympy's nan": nan, "sympy's infinity": oo, "JAX's 2.0": jnp.asarray(2.0), "an array": np.ones(2),
    "a multiple": 2.0 * N, "a negative symbol": Symbol("N", negative=True), "a class": int,
}  # fmt: skip
SIZES = {"2": 2, "NumPy's 2": np.int64(2), "JAX's 2": jnp.asarray(2), "a symbol": N, "N + 1": N + 1}
OF_SIZE = {
    "rows of a stream": lambda size: StreamBlock(lambda s: s, {"x": (size, 2)}),
    "columns of a stream": lambda size: StreamBlock(lambda s: s, {"x": (2, size)}),
    "rows of a block": lambda size: Block(lambda x: x, (size, 2)),
    "columns of a block": lambda size: Block(lambda x: x, (2, size)),
    "a matrix": lambda size: matrix("A", size, 2),
    "a vector": lambda size: vector("a", size),
    "ones": ones,
    "the identity": identity,
    "a stack": ResidualStack,
    "a stack of streams": lambda size: StreamStack((size, 2)),
}


@pytest.mark.parametrize("what", OF_SIZE)
def test_a_size_is_a_whole_number_or_a_symbol(what):
    for name, size in NO_SIZES.items():
        assert "positive integers or symbols" in refusal(OF_SIZE[what], size), name
    for size in SIZES.values():
        OF_SIZE[what](size)


OF_SHAPE = {
    "none": (None, "give that of every stream by its name"),
    "a list of pairs": ([("x", (2, 2))], "give that of every stream by its name"),
    "no stream": ({}, "give that of every stream by its name"),
    "a number": ({"x": 2}, "give rows and columns"),
    "three axes": ({"x": (2, 2, 2)}, "give rows and columns"),
    "a number as name": ({1: (2, 2)}, "is no letter"),
    "two words": ({"x y": (2, 2)}, "is no letter"),
    "one letter twice": ({"λ": (2, 2), "lambda": (2, 2)}, "λ and lambda are one letter"),
}


@pytest.mark.parametrize("name", OF_SHAPE)
def test_shapes_are_given_by_name(name):
    shape, words = OF_SHAPE[name]
    assert words in refusal(StreamBlock, lambda s: s, shape)


LAYERS = {
    "a stream too many": (lambda s: s | {"z": s["x"]}, "x, m, z: give one expression for each of x, m"),
    "a stream too few": (lambda s: {"x": s["x"]}, "give one expression for each of x, m"),
    "another name": (lambda s: {"x": s["x"], 1: s["m"]}, "give one expression for each of x, m"),
    "a stream that isn't there": (lambda s: s | {"x": s["y"]}, "reads a stream 'y': the streams are x, m"),
    "a number": (lambda s: s | {"m": 3}, "m 3: give a matrix expression"),
    "an array of NumPy": (lambda s: s | {"m": np.ones((2, 2))}, "give a matrix expression"),
    "an array of JAX": (lambda s: s | {"m": jnp.ones((2, 2))}, "give a matrix expression"),
    "arrays alone": (lambda s: jnp.ones((2, 2)), "give one expression for each of x, m"),
    "nothing": (lambda s: None, "give one expression for each of x, m"),
    "two arguments": (lambda s, t: s, "function of (s, t)"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_every_stream(name):
    layer, words = LAYERS[name]
    assert words in refusal(StreamBlock, layer, SHAPE)


@pytest.mark.parametrize("shared", ["A", None, 3, ("A", 1), ("B",)])
@pytest.mark.parametrize("keyword", ["shared", "own"])
def test_names_are_a_tuple_of_letters(keyword, shared):
    assert f"{keyword}" in refusal(Block, lambda x: A * x, (2, 2), **{keyword: shared})
    if keyword == "shared":
        assert "shared" in refusal(StreamBlock, lambda s: s | {"x": A * s["m"]}, SHAPE, shared=shared)


BLOCK = StreamBlock(lambda s: s | {"x": s["x"] + held("H", 2, 2) * s["m"] * A + activation(s["x"])}, SHAPE)
ONE = Block(lambda x: x + held("H", 2, 2) * x * A + activation(x), (2, 2))
HALF = jnp.full((2, 2), 0.5)
STREAMS = {"x": HALF, "m": HALF}


def layer(s):
    x = s["x"] + duat.hold(jnp.tanh(s["m"]), "H") @ s["m"] @ HALF + duat.term(jnp.tanh, s["x"], "t")
    return {"x": x, "m": s["m"]}


def one_layer(x):
    return layer({"x": x, "m": x})["x"]


ENTERING = {
    "none": (None, "give an array for each of x, m"),
    "one array": (HALF, "give an array for each of x, m"),
    "a stream too many": (STREAMS | {"z": HALF}, "x, m, z: give an array for each of x, m"),
    "a stream too few": ({"x": HALF}, "give an array for each of x, m"),
    "no array": (STREAMS | {"x": None}, "x is None: give an array of numbers"),
    "a text": (STREAMS | {"x": "one"}, "x is 'one': give an array of numbers"),
    "a ragged list": (STREAMS | {"x": [[1.0], [1.0, 2.0]]}, "give an array of numbers"),
    "an object": (STREAMS | {"x": int}, "give an array of numbers"),
    "a symbol": (STREAMS | {"x": A}, "x is A: give an array of numbers"),
    "whole numbers": (STREAMS | {"x": jnp.ones((2, 2), int)}, "x is of int64: give it a floating-point dtype"),
    "a vector": (STREAMS | {"x": HALF[0]}, "x is 2, expected 2 × 2"),
    "a number": (STREAMS | {"x": 1.0}, "x is a number, expected 2 × 2"),
    "a batch": (STREAMS | {"x": HALF[None]}, "x is 1 × 2 × 2, expected 2 × 2"),
}


@pytest.mark.parametrize("name", ENTERING)
def test_every_stream_has_an_array(name):
    x, words = ENTERING[name]
    assert words in refusal(BLOCK.verify, layer, x, {"A": HALF}, jnp.tanh)


@pytest.mark.parametrize("name", [*ENTERING][4:])
def test_one_stream_has_an_array(name):
    x, words = ENTERING[name]
    assert words in refusal(ONE.verify, one_layer, x["x"], {"A": HALF}, jnp.tanh)


WEIGHTS = {
    "none": (None, "give an array by letter"),
    "a list": ([], "1 function and 0 mappings of weights"),
    "a letter too few": ({}, "no array for A (2 × 2) in weights"),
    "no array": ({"A": None}, "A is None: give an array of numbers"),
    "a text": ({"A": "one"}, "A is 'one': give an array of numbers"),
    "a function": ({"A": lambda held: HALF}, "give an array of numbers"),
    "another shape": ({"A": HALF[:1]}, "A is 1 × 2, expected 2 × 2"),
    "a number as name": ({1: HALF}, "1 names no weight"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_every_weight_has_an_array(name):
    weights, words = WEIGHTS[name]
    assert words in refusal(BLOCK.verify, layer, STREAMS, weights, jnp.tanh)
    assert words in refusal(ONE.verify, one_layer, HALF, weights, jnp.tanh)


ACTIVATIONS = {
    "none": (None, "no function for σ"),
    "a text": ("tanh", "no function for σ"),
    "a text by name": ({"σ": "tanh"}, "no function for σ"),
    "another name": ({"tanh": jnp.tanh}, "no function for σ"),
    "one too many": ([jnp.tanh, jnp.tanh], "activation functions of 2 layers for 1"),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_has_a_function(name):
    functions, words = ACTIVATIONS[name]
    assert words in refusal(BLOCK.verify, layer, STREAMS, {"A": HALF}, functions)
    assert words in refusal(ONE.verify, one_layer, HALF, {"A": HALF}, functions)


FUNCTIONS = {
    "none": (None, "give a marked function"),
    "a number": (3, "give a marked function"),
    "a text": ("f", "give a marked function"),
    "no layer": ([], "0 functions and 1 mapping of weights"),
    "no function": ([3], "give a marked function"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_layer_has_a_function(name):
    functions, words = FUNCTIONS[name]
    assert words in refusal(BLOCK.verify, functions, STREAMS, [{"A": HALF}], jnp.tanh)
    assert words in refusal(ONE.verify, functions, HALF, [{"A": HALF}], jnp.tanh)


RESULTS = {
    "nothing": lambda s: None,
    "a list": lambda s: [s["x"], s["m"]],
    "a stream too few": lambda s: {"x": layer(s)["x"]},
    "a stream too many": lambda s: layer(s) | {"z": HALF},
    "another shape": lambda s: layer(s) | {"x": s["x"][:1]},
    "a number": lambda s: layer(s) | {"x": 1.0},
    "streams in a stream": lambda s: layer(s) | {"x": s},
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_function_gives_every_stream(name):
    words = "layer 1 gets x, m and returns something else"
    assert words in refusal(BLOCK.verify, RESULTS[name], STREAMS, {"A": HALF}, jnp.tanh)


def test_a_function_that_reads_another_stream_is_named():
    words = "layer 1, of the streams x, m, raises KeyError: 'y' (test_stream_refusals.py, line"
    assert words in refusal(BLOCK.verify, lambda s: s | {"x": s["y"]}, STREAMS, {"A": HALF}, jnp.tanh)


def test_symbols_among_sizes_are_named():
    F, G = matrix("F", 2, N), matrix("G", N, 2)
    block = StreamBlock(lambda s: s | {"x": s["x"] + F * activation(G * s["m"])}, SHAPE)
    words = "the block has symbols for sizes, N: write it with numbers"
    assert words in refusal(block.verify, lambda s: s, STREAMS, {"F": HALF, "G": HALF}, jnp.tanh)


def test_a_stream_may_have_a_greek_letter():
    block = StreamBlock(lambda s: {"λ": s["λ"] * A}, {"λ": (2, 2)})
    assert block.verify(lambda s: {"λ": s["λ"] @ HALF}, {"λ": HALF}, {"A": HALF}, {}).holds


def test_a_shape_that_isnt_the_streams_is_a_shape_mismatch():
    with pytest.raises(ShapeMismatch):
        BLOCK.verify(layer, STREAMS | {"x": HALF[0]}, {"A": HALF}, jnp.tanh)
