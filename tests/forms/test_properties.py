"""Closure, agreement of routes and collapse for random shapes, depths, masks and parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import BLOCK_NAMES, close, randomised
from hypothesis import given, settings
from hypothesis import strategies as st

import duat_jax as duat
from duat_jax.nn import ACTIVATIONS, BLOCKS, make_stack


@st.composite
def cases(draw):
    """A random stack, an input, and a mask with at least one real token."""
    heads = draw(st.integers(1, 3))
    features = heads * draw(st.integers(1, 3))
    tokens = draw(st.integers(1, 6))
    config = BLOCKS[draw(st.sampled_from(BLOCK_NAMES))](
        features=features,
        heads=heads,
        neurons=draw(st.integers(1, 8)),
        activation=draw(st.sampled_from(sorted(ACTIVATIONS))),
        causal=draw(st.booleans()),
    )
    stack = make_stack(config, layers=draw(st.integers(1, 4)), dtype=jnp.float64, rngs=nnx.Rngs(0))
    mask = draw(st.lists(st.booleans(), min_size=tokens, max_size=tokens).filter(any))
    seed = draw(st.integers(0, 2**31 - 1))
    return randomised(stack, seed), jax.random.normal(jax.random.key(seed), (tokens, features)), jnp.array(mask)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(cases())
def test_decomposition_form_and_collapse_all_give_the_plain_value(case):
    stack, x, mask = case
    layers = len(stack.blocks)

    def fn(x):
        return stack(x, mask)

    def readout(x):
        return fn(x)[-1].sum()

    value = fn(x)
    parts = duat.decompose(readout, x)
    assert parts.completeness.holds
    assert abs(float(parts.completeness.sum) - float(readout(x))) <= float(parts.completeness.tolerance)
    linear, bias, _ = duat.collapse(fn, x)
    scale = float(1 + np.abs(linear(jnp.abs(x))).max() + np.abs(bias).max())
    close((linear(x) + bias) / scale, value / scale, layers=4 * layers)
    close(duat.unroll(fn, x).evaluate(), value, layers=4 * layers)
