"""The automatic marks of an encoder with a decoder: after every layer both streams together carry the difference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import duat_jax as duat
from duat_jax.marking.streams import CARRIED, STREAM
from tests.helpers import near

LAYERS, TOKENS, FEATURES = 3, {"memory": 4, "text": 3}, 5


def drawn(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape))


def encoder_decoder(streams):
    """Return a number at the last token of a text that reads a memory in every layer, after the memory's own layers."""
    memory, text = streams["memory"], streams["text"]
    inner, outer = drawn(FEATURES, 7), drawn(7, FEATURES) / 4
    for layer in range(LAYERS):
        with jax.named_scope(f"layers.{layer}"):
            memory = memory + jnp.tanh(memory @ inner) @ outer
    for layer in range(LAYERS, 2 * LAYERS):
        with jax.named_scope(f"layers.{layer}"):
            text = text + jax.nn.softmax(text @ memory.T) @ memory / 2
            text = text + jnp.tanh(text @ inner) @ outer
    return text[-1] @ drawn(FEATURES)


def inputs():
    return [{name: drawn(size, FEATURES) + k for name, size in TOKENS.items()} for k in (0, 0.3)]


def points_of(fn, x, y):
    """Return the difference of two inputs, and by layer the sum and the parts of the streams and what is carried on."""
    found = duat.secant(duat.auto(fn), at=("point",))(x, y)
    of_layers = {}
    for key, part in found.contributions.points.items():
        if key.name in (STREAM, CARRIED):
            of_layers.setdefault(key.layer, []).append(part)
    return found, of_layers


def test_the_streams_carry_the_difference_after_every_layer():
    x, y = inputs()
    found, points = points_of(encoder_decoder, x, y)
    assert {*points} == {*range(2 * LAYERS - 1)}, "after the last layer there is one stream"
    for layer, parts in points.items():
        near(sum(part.sum() for part in parts), encoder_decoder(x) - encoder_decoder(y), within=1e-10)
        memory, text = ((each, FEATURES) for each in TOKENS.values())
        # The text's layers read the memory and its transpose, which is computed once.
        assert [part.shape for part in parts] == ([memory, text] if layer < LAYERS else [text, memory, memory[::-1]])
    assert found.completeness.verdict == "holds"


def test_a_memory_that_is_the_same_has_no_part():
    x, y = inputs()
    _, points = points_of(encoder_decoder, x, x | {"text": y["text"]})
    for layer, parts in points.items():
        _, *carried = parts
        memory = parts[:1] if layer < LAYERS else carried
        assert not any(part.any() for part in memory)


@pytest.mark.parametrize("parallel", [False, True])
def test_a_function_of_one_stream_has_no_such_marks(parallel):
    def layer(x):
        attended = jax.nn.softmax(x @ x.T) @ x
        x, read = (x, x) if parallel else (x + attended, x + attended)
        return x + jnp.tanh(read @ drawn(FEATURES, 7)) @ drawn(7, FEATURES) + (attended if parallel else 0)

    x, y = drawn(4, FEATURES), drawn(4, FEATURES) + 0.3
    _, points = points_of(lambda x: layer(layer(x))[-1].sum(), x, y)
    assert not points
