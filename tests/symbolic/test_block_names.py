"""A letter has the name that the user gave its array."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FEATURES
from test_block_of import FUNCTIONS, ROWS, A, B, C, D, Mine, X

from symbolic.blocks.block import Block
from symbolic.expressions.activation import Activation


class Plain:
    """A layer that is no module, and applies a function that closes over an array of NumPy."""

    def __init__(self):
        self.weights = {"down": A, "up": [B]}

    def __call__(self, x):  # noqa: D102
        return x @ self.weights["down"] @ self.weights["up"][0]


PLAIN = Plain()
TWINS = np.ones((FEATURES, FEATURES)), np.ones((FEATURES, FEATURES))


def with_parameters(parameters, x, *, rows):
    return rows @ x @ parameters["mix"]


def closing_over(array):
    return jax.jit(lambda x: jax.jit(lambda y: x + y @ array)(x))


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (Plain(), {"weights.down", "weights.up.0"}),
        (Plain().__call__, {"weights.down", "weights.up.0"}),
        (lambda x: PLAIN(x) + x, {"PLAIN.weights.down", "PLAIN.weights.up.0"}),
        (partial(lambda shift, x: (x @ A) + shift, 1.0), {"A"}),
        (partial(with_parameters, {"mix": A}, rows=ROWS), {"parameters.mix", "rows"}),
        (closing_over(np.asarray(C)), {"array"}),
        (lambda x, kernel=D: x @ kernel, {"kernel"}),
        (lambda x: x @ jnp.diag(A[0]), {"A"}),
        (lambda x: x @ (2 * np.eye(FEATURES)[:, ::-1]), {"unnamed 6 × 6 array"}),
        (lambda x: x @ TWINS[0], {"unnamed 6 × 6 array"}),
        (Mine(), {"gain", "mix.kernel", "mix.bias", "back.kernel", "back.bias", "scale"}),
    ],
)
def test_arrays_have_the_names_that_the_user_gave_them(fn, names):
    assert {source.name for entry in Block.from_function(fn, X).legend.values() for source in entry.sources} == names


def test_one_name_is_one_function():
    read = Block.from_function(FUNCTIONS["other activations"], X)
    names = {activation.function for activation in read.written.atoms(Activation)}
    assert names == set(read.functions) == {"σ", "sigma-2"}
    z = jnp.array([[-1.0]] * X.size)
    assert float(read.functions["σ"](z)[0, 0]) == -0.1
    assert float(read.functions["sigma-2"](z)[0, 0]) == -0.2


def test_the_old_name_of_reading_a_function_warns_at_the_line_that_used_it():
    with pytest.warns(FutureWarning, match=r"Block\.of is called Block\.from_function now") as seen:
        read = Block.of(FUNCTIONS["two terms"], X)
    assert seen[0].filename == __file__
    assert str(read.written) == str(Block.from_function(FUNCTIONS["two terms"], X).written)
