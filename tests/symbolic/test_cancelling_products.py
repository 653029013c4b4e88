"""A block's numbers where a product cancels: what its summands round is no difference, and a wrong weight is one."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close

from symbolic import Block, StreamBlock, activation, matrix
from symbolic.errors import NumbersDiffer
from symbolic.evaluation.bridge import to_jax, with_sizes_to_jax
from symbolic.evaluation.comparison import random_like

WIDTH = 40


def cancelling(v):
    """Return a row whose product with a vector leaves a billionth of what is summed."""
    row = np.random.default_rng(0).normal(size=v.size)
    row[0] = -(row[1:] @ v[1:]) / v[0] * (1 + 1e-9)
    return jnp.asarray(row)[None]


def of_one_stream(row):
    """Return a block whose only entry that isn't zero is a product, its function and its weights."""
    block = Block(lambda x: matrix("W", WIDTH, WIDTH) * x, (WIDTH, 1))
    whole = jnp.zeros((WIDTH, WIDTH)).at[0].set(row[0])
    return block, lambda x: jnp.flip(whole, 1) @ jnp.flip(x), {"W": whole}


def of_two_streams(row):
    """Return the same for a stream that reads another one by a cancelling product."""
    F = matrix("F", 1, WIDTH)
    block = StreamBlock(lambda s: {"x": s["x"] + F * s["m"], "m": s["m"]}, {"x": (1, 1), "m": (WIDTH, 1)})
    return block, lambda s: {"x": s["x"] + jnp.flip(row, 1) @ jnp.flip(s["m"]), "m": s["m"]}, {"F": row}


def test_a_product_that_cancels_is_no_difference():
    m = jnp.linspace(-1.0, 2.0, WIDTH)[:, None]
    for probe in (m, random_like(m, 12)):  # the stream that enters, and the vector that tries the map
        block, layer, weights = of_two_streams(cancelling(probe[:, 0]))
        numbers = block.verify(layer, {"x": jnp.zeros((1, 1)), "m": m}, weights, jnp.tanh)
        assert numbers.holds
        wrong = {"F": weights["F"].at[0, 3].add(1e-6)}
        with pytest.raises(NumbersDiffer, match="U v into x"):
            block.verify(layer, {"x": jnp.zeros((1, 1)), "m": m}, wrong, jnp.tanh)


def test_a_product_that_cancels_in_one_stream_is_no_difference():
    x = jnp.linspace(-1.0, 2.0, WIDTH)
    block, layer, weights = of_one_stream(cancelling(x))
    assert block.verify(layer, x, weights, jnp.tanh).holds
    with pytest.raises(NumbersDiffer, match="W'1 v"):
        block.verify(layer, x, {"W": weights["W"].at[0, 3].add(1e-6)}, jnp.tanh)


def test_the_size_of_a_value_is_the_sum_of_its_products_sizes():
    G, F, z = matrix("G", 2, 3), matrix("F", 3, 4), matrix("z", 4, 1)
    arrays = {name: random_like(jnp.zeros(p.shape), k) for k, (name, p) in enumerate({"G": G, "F": F, "z": z}.items())}
    g, f, x = arrays.values()
    found = with_sizes_to_jax({"linear": G * F * z, "term": G * activation(F * z)}, jnp.tanh)(arrays)
    close(found["linear"].value, (g @ f @ x)[:, 0], layers=3)
    close(found["linear"].size, (jnp.abs(g) @ jnp.abs(f) @ jnp.abs(x))[:, 0], layers=3)
    inside, before = f @ x, jnp.abs(f) @ jnp.abs(x)
    slope = 1 - jnp.tanh(inside) ** 2
    close(found["term"].value, to_jax(G * activation(F * z), jnp.tanh)(arrays), layers=3)
    close(found["term"].size, (jnp.abs(g) @ (jnp.abs(jnp.tanh(inside)) + slope * before))[:, 0], layers=3)
