"""A scan in blocks is the scan, and so is its derivative."""

import jax
import jax.numpy as jnp
import pytest
from helpers import close

from duat_jax.transform.blocks_of_steps import scan_in_blocks


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 7, 12])
def test_a_scan_in_blocks_is_the_scan(length, reverse):
    x = jax.random.normal(jax.random.key(0), (length, 2))

    def step(state, u):
        state = jnp.cos(state) * u + state
        return state, {"state": state, "rest": jnp.sin(u)}

    def run(scan, x):
        last, stacked = scan(step, x.sum(0) + 1, x, length=length, reverse=reverse, unroll=1)
        weighted = jnp.arange(float(length))[:, None] * stacked["state"] * stacked["rest"]
        return last.sum() + weighted.sum(), (last, stacked)

    evaluate = jax.value_and_grad(run, argnums=1, has_aux=True)
    jax.tree.map(close, evaluate(scan_in_blocks, x), evaluate(jax.lax.scan, x))
