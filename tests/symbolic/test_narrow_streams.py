"""Streams of one feature, of one token, and of one number: layers that act from both sides, proved and compared."""

import jax
import jax.numpy as jnp
import pytest

import duat_jax as duat
from symbolic import Block, StreamBlock, activation, diag, hadamard, held, matrix, ones, sizes, summed

NEURONS, HEADS = 5, 2
SIZES = {
    "several tokens of one feature": (3, 4, 1),
    "one token of several features": (1, 4, 2),
    "one number": (1, 1, 1),
    "a memory of one slot": (3, 1, 2),
}
"""Tokens of the text, slots of the memory, and features of both."""

_FAST = [*SIZES][:2]
CASES = [pytest.param(size, marks=() if size in _FAST else pytest.mark.slow) for size in SIZES]

HELD = "DHgrP"


def shapes_of(tokens, slots, features):
    return {
        "D": (tokens, slots), "H": (tokens, tokens), "P": (tokens, slots), "g": (tokens, NEURONS), "r": (tokens, 1),
        "V": (features, features), "W": (features, features), "a": (features, 1), "b": (NEURONS, 1),
        "F": (features, NEURONS), "G": (NEURONS, features), "K": (features, 2), "O": (2, features),
        "R": (NEURONS, tokens), "L": (tokens, NEURONS),
    }  # fmt: skip


class Letters:
    """A layer's letters as symbols."""

    hadamard, diag, activation = staticmethod(hadamard), staticmethod(diag), staticmethod(activation)
    ones = staticmethod(ones)

    def __init__(self, shapes):
        self.shapes = shapes

    def __call__(self, letter, *indices):
        """Return a letter."""
        rows, columns = self.shapes[letter]
        return (held if letter in HELD else matrix)(letter, rows, columns, *indices)

    def heads(self, summand):
        """Return a sum over heads."""
        return summed(summand, 1, HEADS)


class Arrays:
    """The same letters as arrays, of which the held ones are computed from the stream and marked."""

    hadamard, diag = staticmethod(jnp.multiply), staticmethod(lambda v: jnp.diag(v[:, 0]))

    def __init__(self, weights, shapes, x):
        self.weights, self.shapes, self.x, self.terms, self.marked = weights, shapes, x, 0, {}

    def __call__(self, letter, *indices):
        """Return the array of a letter."""
        name = f"{letter}[{indices[0]}]" if indices else letter
        if letter not in HELD:
            return self.weights[name]
        if name not in self.marked:
            rows, columns = self.shapes[letter]
            places = jnp.arange(rows * columns, dtype=self.x.dtype).reshape(rows, columns)
            self.marked[name] = duat.hold(jnp.cos(places + ord(name[-1]) + self.x.sum()), name)
        return self.marked[name]

    def ones(self, size):
        """Return a column of ones."""
        return jnp.ones((size, 1), self.x.dtype)

    def activation(self, z, name="σ"):
        """Return a term."""
        self.terms += 1
        return duat.term(FUNCTIONS[name], z, f"term{self.terms}")

    def heads(self, summand):
        """Return a sum over heads."""
        return sum(map(summand, range(1, HEADS + 1)))


FUNCTIONS = {"σ": jax.nn.softplus, "tanh": jnp.tanh}

# Of the text x, the memory m (which is x itself in a layer of one stream) and the letters.
LAYERS = {
    "attention": lambda x, m, p: x + p("D") @ m @ p("V"),
    "attention to both": lambda x, m, p: x + p("H") @ x @ p("W") + p("D") @ m @ p("V"),
    "several matrices on both sides": lambda x, m, p: x + p("H") @ p("H") @ x @ p("V") @ p("W") + p("D") @ m,
    "heads": lambda x, m, p: x + p.heads(lambda h: p("P", h) @ m @ p("K", h) @ p("O", h)),
    "a mean over tokens": lambda x, m, p: x + p("r") @ p("r").T @ x + p("D") @ m,
    "a bias": lambda x, m, p: x @ p("V") + p("r") @ p("a").T,
    "norms": lambda x, m, p: p.diag(p("r")) @ (x + p("D") @ m @ p("V")) @ p.diag(p("a")),
    "an MLP": lambda x, m, p: x + p.activation(x @ p("F") + p.ones(x.shape[0]) @ p("b").T) @ p("G"),
    "an MLP behind attention": lambda x, m, p: x + p.activation((x + p("D") @ m @ p("V")) @ p("F")) @ p("G"),
    "a gated MLP": lambda x, m, p: x + p.hadamard(p("g"), p.activation(x @ p("F"))) @ p("G"),
    "an MLP over tokens": lambda x, m, p: x + p("L") @ p.activation(p("R") @ x @ p("W")) @ p("V"),
    "coupled terms": lambda x, m, p: (
        x + p.activation(p("D") @ p.activation(m @ p("W"), "tanh") @ p("F") + x @ p("F")) @ p("G")
    ),
}


def in_numbers(name, shapes, seed):
    """Return a layer in JAX as a function of text and memory, and its weights."""
    shapes_by_name = {letter: shape for letter, shape in shapes.items() if letter not in HELD}
    shapes_by_name |= {f"{letter}[{h}]": shapes[letter] for letter in "KO" for h in range(1, HEADS + 1)}
    keys = jax.random.split(jax.random.key(seed), len(shapes_by_name))
    weights = {
        letter: jax.random.normal(key, shape) for key, (letter, shape) in zip(keys, shapes_by_name.items(), strict=True)
    }
    return lambda x, m: LAYERS[name](x, m, Arrays(weights, shapes, x)), weights


@pytest.mark.parametrize("size", CASES)
@pytest.mark.parametrize("name", LAYERS)
def test_narrow_streams_are_proved_and_have_the_numbers_of_their_code(name, size):
    tokens, slots, features = SIZES[size]
    shapes = shapes_of(tokens, slots, features)
    block = StreamBlock(
        lambda s: {"x": LAYERS[name](s["x"], s["m"], Letters(shapes)), "m": s["m"]},
        {"x": (tokens, features), "m": (slots, features)},
    )
    assert block.prove().proved
    layers, weights = zip(*(in_numbers(name, shapes, seed) for seed in (0, 1)), strict=True)
    entering = {"x": jax.random.normal(jax.random.key(2), (tokens, features)), "m": jnp.ones((slots, features))}
    functions = [lambda s, layer=layer: {"x": layer(s["x"], s["m"]), "m": s["m"]} for layer in layers]
    assert block.verify(functions, entering, weights, FUNCTIONS).holds


@pytest.mark.parametrize("size", CASES[:-1])
@pytest.mark.parametrize("name", LAYERS)
def test_one_narrow_stream_is_proved_and_has_the_numbers_of_its_code(name, size):
    tokens, _, features = SIZES[size]
    shapes = shapes_of(tokens, tokens, features)
    block = Block(lambda x: LAYERS[name](x, x, Letters(shapes)), (tokens, features))
    assert block.prove().proved
    layers, weights = zip(*(in_numbers(name, shapes, seed) for seed in (0, 1)), strict=True)
    functions = [lambda x, layer=layer: layer(x, x) for layer in layers]
    x = jax.random.normal(jax.random.key(2), (tokens, features))
    assert block.verify(functions, x, weights, FUNCTIONS).holds


@pytest.mark.parametrize("letter", ["a", "r", "z", "β"])
def test_a_gate_may_have_any_letter(letter):
    (d,) = sizes("d")
    block = Block(lambda x: x + hadamard(held(letter, d), x), (d, 1))
    assert str(block.parameters[0].right) == f"I + diag({letter}ᵢ₊₁)" and block.prove().proved
