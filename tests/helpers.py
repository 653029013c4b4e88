"""What the tests share: random stacks, inputs, and the tolerance."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from duat_jax.nn import BLOCKS, Stack
from duat_jax.verification import randomised

FEATURES, HEADS, NEURONS = 6, 2, 10
BLOCK_NAMES = tuple(BLOCKS)


def make_stack(block, layers=2, *, activation="gelu", causal=True, dtype=jnp.float64, key=0):
    """Return a random stack of one block type."""
    stack = Stack(
        block,
        layers=layers,
        features=FEATURES,
        heads=HEADS,
        neurons=NEURONS,
        activation=activation,
        causal=causal,
        dtype=dtype,
        rngs=nnx.Rngs(key),
    )
    return randomised(stack, key)


def make_input(tokens=4, *, dtype=jnp.float64, key=1):
    """Return a random residual stream."""
    return jax.random.normal(jax.random.key(key), (tokens, FEATURES), dtype)


def weights_of(shape, key=2):
    """Return a random read-out covector."""
    return jax.random.normal(jax.random.key(key), shape)


def close(actual, expected, layers=3):
    """Assert equality up to the project's rule, the size of the summands taken as that of the larger entries."""
    actual, expected = np.asarray(actual).reshape(-1), np.asarray(expected).reshape(-1)
    eps = np.finfo(expected.dtype).eps
    size = max(1.0, np.abs(expected).max(initial=0)) * np.sqrt(max(1, expected.size))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=8 * eps * (layers + 2) * size)
