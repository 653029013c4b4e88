"""Helpers of the tests: random stacks, inputs, and comparisons of numbers."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import duat_jax as duat
from duat_jax.nn import BLOCKS, BlockConfig, Rotary, rotary_frequencies
from duat_jax.nn import make_stack as stack_of
from duat_jax.verification.networks import randomised
from duat_jax.verification.rounding_bound import rounding_bound

FEATURES, HEADS, NEURONS = 6, 2, 10
BLOCK_NAMES = tuple(BLOCKS)


modern = partial(
    BlockConfig,
    arrangement="pre-norm",
    key_value_heads=1,
    head_features=4,
    attention_bias=False,
    output_bias=False,
    rotary=Rotary(rotary_frequencies(4)),
    score_cap=2.0,
    mlp="gated",
    mlp_bias=False,
    norm="rms",
)
"""A block as in the models of today: shared keys and values, rotary positions, gates, one norm without a mean."""


def described(config):
    """Return what a question asks a model for, before weights are read: its configuration, and no tokenizer."""
    return SimpleNamespace(config=config, tokenizer=None)


def numbers(*shape, key=0):
    """Return random numbers in double precision."""
    return np.array(jax.random.normal(jax.random.key(key), shape, jnp.float64))


def unchecked(function):
    """Return a function without the suite's own check of annotations, which would refuse first."""
    return getattr(function, "__wrapped__", function)


def striped(count, seed=0):
    """Images with stripes across, stripes along, or none: classes that anything learns."""
    labels = np.arange(count) % 3
    images = np.random.default_rng(seed).uniform(0, 0.3, (count, 1, 8, 8)).astype(np.float32)
    images[labels == 0, :, ::2] += 0.7
    images[labels == 1, :, :, ::2] += 0.7
    return images, labels


def make_stack(block, layers=2, *, activation="gelu", causal=True, dtype=jnp.float64, key=0):
    """Return a random stack of one block type, a name or what makes its configuration."""
    config = (block if callable(block) else BLOCKS[block])(
        features=FEATURES, heads=HEADS, neurons=NEURONS, activation=activation, causal=causal
    )
    stack = stack_of(config, layers=layers, dtype=dtype, rngs=nnx.Rngs(key))
    return randomised(stack, key)


def make_input(tokens=4, *, dtype=jnp.float64, key=1):
    """Return a random residual stream."""
    return jax.random.normal(jax.random.key(key), (tokens, FEATURES), dtype)


def weights_of(shape, key=2):
    """Return a random read-out covector, whose making is no part of the program that is traced."""
    with jax.ensure_compile_time_eval():
        return jax.random.normal(jax.random.key(key), shape)


def recorded(fn):
    """Return a function's value and everything marked in it."""

    def run(x):
        recording = duat.record(fn)(x)
        return recording.value, recording.dynamics

    return run


def close(actual, expected, layers=3):
    """Assert equality up to rounding, the size of the summands taken as that of the larger entries."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    dtype = np.result_type(expected, np.float32) if expected.dtype.kind in "iub" else expected.dtype
    size = max(1.0, np.abs(expected).max(initial=0)) * np.sqrt(max(1, expected.size))
    # One number may be what every entry is compared with; otherwise shapes may differ, the order of entries not.
    near(
        actual.reshape(-1),
        expected.reshape(-1) if expected.ndim else expected,
        within=rounding_bound(dtype, layers, size),
    )


def near(actual, expected, within, message=""):
    """Assert that no entry is further off than `within`: for estimates, printed digits, and dtypes that are mixed."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=within, err_msg=message)


def relative(actual, expected, within, message=""):
    """Assert that no entry is further off than `within` of its own size."""
    np.testing.assert_allclose(actual, expected, rtol=within, atol=0, err_msg=message)


def far(actual, expected, by=1e-5):
    """Return whether some entry differs by more than `by`."""
    return float(np.abs(np.asarray(actual) - np.asarray(expected)).max()) > by
