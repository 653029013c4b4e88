"""Both inputs are computed at once, but nothing is computed otherwise than at each alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close
from jax import lax

import duat_jax as duat

X, Y = jnp.array([20.0, 2.0, 3.0, 4.0]), jnp.array([5.0, 0.5, 0.25, 0.75])

DRAWS = {
    "normal": lambda key: jax.random.normal(key, (4,)),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.5, (4,)),
    "gamma": lambda key: jax.random.gamma(key, 2.0, (4,)),
    "split and mapped": lambda key: jax.vmap(jax.random.uniform)(jax.random.split(key, 4)),
    "in a scan": lambda key: lax.scan(lambda k, _: (jax.random.split(k)[0], jax.random.normal(k)), key, None, 4)[1],
    "raw": lambda key: jax.random.uniform(jax.random.wrap_key_data(jax.random.key_data(key), impl=impl_of(key)), (4,)),
    "bits": lambda key: jax.random.bits(key, (4,)) % 7,
}


def impl_of(key):
    return str(jax.random.key_impl(key))


def total(draws, key, x):
    return sum((x * jnp.asarray(draw(key), x.dtype)).sum() for draw in draws.values())


@pytest.mark.parametrize(
    "impl", ["unsafe_rbg", *(pytest.param(impl, marks=pytest.mark.slow) for impl in ("rbg", "threefry2x32"))]
)
def test_random_numbers_are_those_of_each_input_alone(impl):
    def fn(arguments):
        x, key = arguments
        return total(DRAWS, key, x) + total(DRAWS, jax.random.fold_in(key, x[0].astype(int)), x)

    x, y = zip((X, Y), jax.random.split(jax.random.key(0, impl=impl)))
    found = duat.secant(fn)(x, y)
    close(found.difference, fn(x) - fn(y), layers=20)
    assert found.completeness.verdict == "holds"


@jax.custom_batching.custom_vmap
def halved(index):
    return index // 2


@halved.def_vmap
def _(size, batched, index):
    return 3 * index, True


def called(method):
    result = jax.ShapeDtypeStruct((), jnp.int32)
    return lambda i: jax.pure_callback(
        lambda i: np.full(np.shape(i), np.size(i), np.int32), result, i, vmap_method=method
    )


CHOICES = {
    "a rule for batches": halved,
    "the same in a call": jax.jit(halved),
    "the same computed again": jax.checkpoint(halved),
    "the same in a scan": lambda i: lax.scan(lambda i, _: (halved(i), None), i, None, length=2)[0],
    "the same in a loop": lambda i: lax.while_loop(lambda i: i > 2, halved, i),
    "the same in a branch": lambda i: lax.cond(i > 9, halved, lambda i: i + 1, i),
    "a loop that ends at one input only": lambda i: lax.cond(
        i > 9, lambda i: i, lambda i: lax.while_loop(lambda i: i != 9, lambda i: i + 1, i), i
    ),
    **{f"a callback, {method}": called(method) for method in ("sequential", "expand_dims", "broadcast_all")},
    "numbers by a generator": lambda i: (
        lax.rng_bit_generator(jnp.stack([i, i, i, i]).astype(jnp.uint32), (), jnp.uint32)[1] % 5
    ),
}


def test_choices_are_those_of_each_input_alone():
    def fn(x):
        return sum((x * k * jnp.asarray(choose(x[0].astype(jnp.int32)), x.dtype)).sum() for k, choose in cases)

    cases = list(enumerate(CHOICES.values(), 1))
    found = duat.secant(fn)(X, Y)
    close(found.difference, fn(X) - fn(Y), layers=20)
    assert found.completeness.verdict == "holds"
