"""A layer of several streams that a user writes: read off, proved, and the same numbers as code in JAX."""

import re

import jax
import jax.numpy as jnp
import pytest

import duat_jax as duat
from symbolic import StreamBlock, activation, held, identity, matrix, ones, scalar, sizes, vector
from symbolic.blocks.block import Block
from symbolic.errors import NumbersDiffer, ShapeMismatch, SymbolicError
from symbolic.proof.typesetting import article
from symbolic.theorems.residual_stack import i
from typesetting.check import check_latex, two_columns

TOKENS, SLOTS, FEATURES, OF_MEMORY, NEURONS = 3, 4, 2, 5, 6


def weights_of(shapes, seed):
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    return {name: jax.random.normal(key, shape) for key, (name, shape) in zip(keys, shapes.items(), strict=True)}


def cross_attention(tokens=TOKENS, slots=SLOTS, features=FEATURES, of_memory=OF_MEMORY, neurons=NEURONS):
    """A decoder beside its encoder: both attend, the text to the memory too, and each has an MLP of its own."""
    D, H, E = held("D", tokens, slots), held("H", tokens, tokens), held("E", slots, slots)
    V, W, A = matrix("V", of_memory, features), matrix("W", features, features), matrix("A", of_memory, of_memory)
    F, G, f = matrix("F", features, neurons), matrix("G", neurons, features), vector("f", neurons)
    R, S = matrix("R", of_memory, neurons), matrix("S", neurons, of_memory)

    def layer(streams):
        x, m = streams["x"], streams["m"]
        y = x + H * x * W + D * m * V
        text = y + activation(y * F + ones(tokens) * f.T) * G
        return {"x": text, "m": m + E * m * A + activation(m * R, "tanh") * S}

    return StreamBlock(layer, {"x": (tokens, features), "m": (slots, of_memory)}, "decoder beside its encoder")


def cross_attention_in_jax(seed):
    shapes = {
        "V": (OF_MEMORY, FEATURES), "W": (FEATURES, FEATURES), "A": (OF_MEMORY, OF_MEMORY), "F": (FEATURES, NEURONS),
        "G": (NEURONS, FEATURES), "f": (NEURONS,), "R": (OF_MEMORY, NEURONS), "S": (NEURONS, OF_MEMORY),
    }  # fmt: skip
    w = weights_of(shapes, seed)
    query = jax.random.normal(jax.random.key(seed + 100), (FEATURES, OF_MEMORY))

    def layer(streams):
        x, m = streams["x"], streams["m"]
        D = duat.hold(jax.nn.softmax(x @ query @ m.T), "D")
        H, E = duat.hold(jax.nn.softmax(x @ x.T), "H"), duat.hold(jax.nn.softmax(m @ m.T), "E")
        y = x + H @ x @ w["W"] + D @ m @ w["V"]
        memory = m + E @ m @ w["A"] + duat.term(jnp.tanh, m @ w["R"], "memory.mlp") @ w["S"]
        return {"x": y + duat.term(jax.nn.softplus, y @ w["F"] + w["f"], "mlp") @ w["G"], "m": memory}

    return layer, w


def prefix():
    """A prefix that is learned: tokens attend to it and to one another by one pattern, in two parts."""
    D, H, V = held("D", TOKENS, SLOTS), held("H", TOKENS, TOKENS), matrix("V", FEATURES, FEATURES)

    def layer(streams):
        return {"x": streams["x"] + (H * streams["x"] + D * streams["p"]) * V, "p": streams["p"]}

    return StreamBlock(layer, {"x": (TOKENS, FEATURES), "p": (SLOTS, FEATURES)}, "layer with a prefix")


def prefix_in_jax(seed):
    w = weights_of({"V": (FEATURES, FEATURES)}, seed)

    def layer(streams):
        x, p = streams["x"], streams["p"]
        pattern = jax.nn.softmax(x @ jnp.concatenate([p, x]).T)
        D, H = duat.hold(pattern[:, :SLOTS], "D"), duat.hold(pattern[:, SLOTS:], "H")
        return {"x": x + (H @ x + D @ p) @ w["V"], "p": p}

    return layer, w


def hyper_connections():
    """Three copies of a stream that are mixed by numbers; an MLP reads one mixture and writes into all."""
    F, G = matrix("F", NEURONS, FEATURES), matrix("G", FEATURES, NEURONS)

    def layer(streams):
        every = list(streams.values())
        read, *rest = (scalar("alpha", n) * stream for n, stream in enumerate(every, 1))
        h = G * activation(F * sum(rest, read))
        mixed = {}
        for s, name in enumerate(streams, 1):
            first, *others = (scalar("gamma", s, r) * stream for r, stream in enumerate(every, 1))
            mixed[name] = sum(others, first) + scalar("beta", s) * h
        return mixed

    return StreamBlock(layer, dict.fromkeys("xyz", (FEATURES, 1)), "layer with hyper-connections")


def hyper_connections_in_jax(seed):
    names = [f"{letter}[{n}]" for letter in ("alpha", "beta") for n in (1, 2, 3)]
    names += [f"gamma[{s},{r}]" for s in (1, 2, 3) for r in (1, 2, 3)]
    w = weights_of({"F": (NEURONS, FEATURES), "G": (FEATURES, NEURONS)} | dict.fromkeys(names, ()), seed)

    def layer(streams):
        every = list(streams.values())
        read = sum(w[f"alpha[{n}]"] * stream for n, stream in enumerate(every, 1))
        h = w["G"] @ duat.term(jax.nn.softplus, w["F"] @ read, "mlp")
        return {
            name: sum(w[f"gamma[{s},{r}]"] * stream for r, stream in enumerate(every, 1)) + w[f"beta[{s}]"] * h
            for s, name in enumerate(streams, 1)
        }

    return layer, w


EXAMPLES = {
    "cross-attention": (cross_attention, cross_attention_in_jax),
    "prefix": (prefix, prefix_in_jax),
    "hyper-connections": (hyper_connections, hyper_connections_in_jax),
}
FUNCTIONS = {"σ": jax.nn.softplus, "tanh": jnp.tanh}


def entering(block, seed=9):
    flat = block.streams[0].shape[1] == 1
    shapes = {stream.letter: tuple(map(int, stream.shape))[: 1 if flat else 2] for stream in block.streams}
    return weights_of(shapes, seed)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_layer_of_several_streams_is_proved(name):
    block = EXAMPLES[name][0]()
    for derivation in (block.residual_terms(), block.prove()):
        assert derivation.proved and not any(derivation.conditions)
    assert len(block.prove().inductions) == len(block.streams)
    assert block.name in str(block.prove()) and "?" not in re.sub(r"\\.*", "", block.document())


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_layer_of_several_streams_has_the_numbers_of_its_code(name, depth):
    make, in_jax = EXAMPLES[name]
    block = make()
    functions, weights = zip(*(in_jax(seed) for seed in range(depth)), strict=True)
    numbers = block.verify(list(functions), entering(block), list(weights), FUNCTIONS)
    assert numbers.holds and f"at depth {depth}" in str(numbers)
    assert any(row.at_second_input for row in numbers.rows)


def test_sizes_may_be_symbols():
    proof = cross_attention(*sizes("N K M L n")).prove()
    assert proof.proved and "K, L, M, N and n are any positive integers" in str(proof)


def test_one_stream_has_the_matrices_of_a_block():
    A, F, G, f = matrix("A", 4, 4), matrix("F", 8, 4), matrix("G", 4, 8), vector("f", 8)
    one = StreamBlock(lambda s: {"x": s["x"] + A * s["x"] + G * activation(F * s["x"] + f)}, {"x": (4, 1)})
    block = Block(lambda x: x + A * x + G * activation(F * x + f), (4, 1))
    ours, theirs = ({str(each.right) for each in of.parameters} for of in (one, block))
    assert ours == theirs


def test_what_a_memory_does_not_read_is_absent():
    block = cross_attention()
    assert {("U", 2, 1), ("F", 1, 2), ("G", 2, 1)} & {*block.stack.absent}
    assert block.stack.U(i + 1, 2, 1).is_ZeroMatrix and "U" in str(block.parameters[0].left)
    crossing = next(each for each in block.parameters if each.left == block.stack.U(i + 1, 1, 2))
    assert str(crossing.right) == "Dᵢ₊₁ ⊗ Vᵢ₊₁.T"


LIES = {
    "the memory reads the text": lambda made, s: made | {"m": made["m"] + s["x"].sum()},
    "the text reads the memory twice": lambda made, s: made | {"x": made["x"] + s["m"].sum()},
    "a bias": lambda made, s: made | {"m": made["m"] + 1.0},
}


@pytest.mark.parametrize("name", LIES)
def test_code_that_is_another_layer_is_refused(name):
    block, (layer, weights) = cross_attention(), cross_attention_in_jax(0)
    with pytest.raises(NumbersDiffer, match="the function isn't the decoder beside its encoder"):
        block.verify(lambda s: LIES[name](layer(s), s), entering(block), weights, FUNCTIONS)


def test_what_is_compared_has_to_be_given():
    block, (layer, weights) = cross_attention(), cross_attention_in_jax(0)
    x = entering(block)
    for wrong, words in (
        ({"x": x["x"]}, "give an array for each of x, m"),
        (x | {"m": x["m"].T}, "m is 5 × 4, expected 4 × 5"),
    ):
        with pytest.raises(SymbolicError, match=words):
            block.verify(layer, wrong, weights, FUNCTIONS)
    with pytest.raises(SymbolicError, match=r"no array for V \(5 × 2\) in weights"):
        block.verify(layer, x, {name: w for name, w in weights.items() if name != "V"}, FUNCTIONS)
    with pytest.raises(SymbolicError, match="gets x, m and returns something else"):
        block.verify(lambda s: s["x"], x, weights, FUNCTIONS)
    with pytest.raises(SymbolicError, match="the block has symbols for sizes, K, L, M, N, n: write it"):
        cross_attention(*sizes("N K M L n")).verify(layer, x, weights, FUNCTIONS)


A = matrix("A", 2, 2)
SHAPE = {"x": (2, 2), "m": (2, 2)}
REFUSED = {
    "no shapes by name": (lambda s: s, (2, 2), "give that of every stream by its name"),
    "a shape of one number": (lambda s: s, {"x": (2,)}, "the shape of x is"),
    "no letter": (lambda s: s, {"x1": (2, 2)}, "is no letter"),
    "one stream is missing": (lambda s: {"x": s["x"]}, SHAPE, "give one expression for each of x, m, by name"),
    "no mapping": (lambda s: s["x"], SHAPE, "give one expression for each of x, m, by name"),
    "no expression": (lambda s: s | {"m": 3}, SHAPE, "the layer makes m 3: give a matrix expression"),
    "another shape": (lambda s: s | {"m": s["m"] * vector("f", 2)}, SHAPE, "the stream m is 2 × 2 and the layer"),
    "a product of two streams": (lambda s: s | {"x": s["x"] * s["m"]}, SHAPE, "has to be held"),
    "a product inside a term": (lambda s: s | {"x": activation(s["x"] * A * s["m"])}, SHAPE, "has to be held"),
    "a product with a term": (lambda s: s | {"x": s["m"] * activation(s["x"])}, SHAPE, "has to be held"),
    "the letter of a stream": (lambda s: s | {"x": s["x"] * matrix("m", 2, 2)}, SHAPE, "m is a stream and a parameter"),
    "a shared letter that isn't there": (lambda s: s, SHAPE, "B is shared, and no letter of the layer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_layer_of_several_streams_that_can_be_none_is_refused(name):
    layer, shape, words = REFUSED[name]
    with pytest.raises(SymbolicError, match=words):
        StreamBlock(layer, shape, shared=("B",) if "shared" in name else ())


def test_a_shape_that_changes_is_named():
    with pytest.raises(ShapeMismatch, match="2 × 1: every layer of a stack has streams of the same shapes"):
        StreamBlock(lambda s: {"x": s["x"] * vector("f", 2)}, {"x": (2, 2)})


def test_a_shared_letter_is_the_same_in_every_layer():
    block = StreamBlock(lambda s: s | {"x": s["x"] + s["m"] * A * identity(2)}, SHAPE, shared=("A",))
    assert str(block.layer[0].right) == "xᵢ + mᵢ A" and block.prove().proved


def test_documents_of_several_streams_fit():
    blocks = [make() for make, _ in EXAMPLES.values()]
    derivations = [derivation for block in blocks for derivation in (block.residual_terms(), block.prove())]
    assert "no overfull" in check_latex(two_columns(dict.fromkeys(derivations, "a block of several streams")))
    assert "no overfull" in check_latex(article(*derivations))
