"""Masks, and functions of scans and other awkward constructions."""

import jax
import jax.numpy as jnp

import duat_jax as duat

MASKS = {
    "causal": (True, None),
    "none": (False, None),
    "padding": (False, jnp.array([True, True, True, False])),
    "causal and padding": (True, jnp.array([False, True, True, True])),
}


def scan_of(stack, *, remat=False, reverse=False, unroll=1):
    blocks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *stack.blocks)

    def fn(x):

        def step(x, block):
            x = block(x)
            return duat.stream(x, "layer"), x.sum()

        x = duat.stream(x, "layer")
        return jax.lax.scan(jax.checkpoint(step) if remat else step, x, blocks, reverse=reverse, unroll=unroll)[0]

    return fn


def awkward(x):
    """A scan with a counter, a shared bias, the input used in every step, and remat; custom_jvp inside."""
    kernels = jax.random.normal(jax.random.key(3), (4, 6, 6)) / 3
    bias = duat.offset(jax.random.normal(jax.random.key(4), (6,)), "shared")

    @jax.custom_jvp
    def doubled(x):
        return 2 * duat.hold(jax.nn.sigmoid(x.sum()), "gate") * x

    doubled.defjvp(lambda primals, tangents: (doubled(*primals), 2 * tangents[0]))

    def step(carry, kernel):
        h, i = carry
        h = 0.5 * doubled(h) + duat.term(jax.nn.gelu, h @ kernel + bias, "mlp") * jnp.cos(i) + 0.1 * x
        return (h, i + 1.0), (h.sum(), i)

    (h, i), (sums, counted) = jax.lax.scan(jax.checkpoint(step), (x, 0.0), kernels)
    return (h * i).sum() + (sums * counted).sum()
