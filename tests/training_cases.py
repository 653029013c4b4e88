"""A small training that tests of training runs share: its texts, terms, number and first weights."""

import jax
import jax.numpy as jnp
import numpy as np

EXAMPLES, STEPS, BATCH, RATE = 12, 7, 3, 0.05
X = jax.random.normal(jax.random.key(0), (EXAMPLES, 4))
Y = jnp.sin(X.sum(1))
WHICH = np.random.default_rng(0).integers(0, EXAMPLES, (STEPS, BATCH))


def batches(number):
    return X[WHICH[number]], Y[WHICH[number]]


def loss_of(weights, x, y):
    return (jnp.tanh(x @ weights["in"]) @ weights["out"] - y) ** 2


def terms(weights, batch):
    return jax.vmap(loss_of, (None, 0, 0))(weights, *batch) / len(batch[0])


def number(weights):
    return loss_of(weights, X[0], Y[0]) + weights["out"][0]


def first_weights(dtype=jnp.float64):
    keys = jax.random.split(jax.random.key(1))
    shapes = {"in": (4, 5), "out": (5,)}
    return {name: jax.random.normal(key, shapes[name], dtype) for name, key in zip(shapes, keys, strict=True)}
