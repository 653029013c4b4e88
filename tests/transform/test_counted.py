"""A loop that counts to a number that is written in the program is a scan of as many steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import near, numbers
from jax import lax

import duat_jax as duat
from duat_jax.transform.counted import MOST
from duat_jax.transform.program import trace

X, MATRICES = jnp.asarray(numbers(3, 4)), jnp.asarray(numbers(4, 4, 4, key=1)) / 2


def layer(x, k):
    return x + duat.term(jnp.tanh, x @ MATRICES[k], "mlp")


def scanned(x):
    return lax.scan(lambda x, k: (layer(x, k), None), x, jnp.arange(4))[0]


def by_while(begin, goes_on, next_of, at=lambda i: i):
    return lambda x: lax.while_loop(
        lambda s: goes_on(s[0]), lambda s: (next_of(s[0]), layer(s[1], at(s[0]))), (begin, x)
    )[1]


def in_two_counters(x):
    def step(s):
        i, j, x = s
        return j, j + 1, layer(x, i)

    return lax.while_loop(lambda s: s[0] < 4, step, (0, 1, x))[2]


COUNTED = {
    "a while": by_while(0, lambda i: i < 4, lambda i: i + 1),
    "backwards": by_while(4, lambda i: i > 0, lambda i: i - 1, lambda i: 4 - i),
    "by twos": by_while(0, lambda i: i != 8, lambda i: i + 2, lambda i: i // 2),
    "a float": by_while(1.0, lambda i: i < 1e4, lambda i: 10 * i, lambda i: jnp.log10(i).round().astype(int)),
    "two counters": in_two_counters,
    "a fori_loop": lambda x: lax.fori_loop(0, 4, lambda k, x: layer(x, k), x),
    "a fori_loop of arrays": lambda x: lax.fori_loop(jnp.int32(0), jnp.int32(4), lambda k, x: layer(x, k), x),
    "in a jit and a remat": lambda x: jax.jit(jax.checkpoint(COUNTED["a while"]))(x),
    "in a vmap": lambda x: jax.vmap(COUNTED["a while"])(x[:, None])[:, 0],
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_loop_that_counts_has_the_parts_of_a_scan(name):
    def last(fn):
        return lambda x: fn(x)[-1, 0]

    found, expected = (duat.decompose(last(fn), X) for fn in (COUNTED[name], scanned))
    assert found.completeness.holds
    near(found.input, expected.input, 1e-12)
    near(*([part.reshape(4, 3, 4) for part in each.terms.values()] for each in (found, expected)), 1e-12)
    near(*(duat.secant(last(fn))(X, X[::-1]).parts for fn in (COUNTED[name], scanned)), 1e-12)
    np.testing.assert_array_equal(duat.record(COUNTED[name])(X).value, COUNTED[name](X))


UNKNOWN = {
    "a condition on values": lambda x: lax.while_loop(
        lambda x: x.sum() < 9, lambda x: duat.hold(2 * x + 1, "x"), jnp.abs(x)
    ),
    "a number that is given": lambda x: by_while(0, lambda i: i < MATRICES.astype(int)[0, 0, 0] + 4, lambda i: i + 1)(
        x
    ),
    "longer than is counted": by_while(0, lambda i: i <= MOST, lambda i: i + 1, lambda _: 0),
    "without an end": by_while(0, lambda i: i < 4, lambda i: i, lambda _: 0),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_loop_without_a_fixed_count_stays_one(name):
    with pytest.raises(duat.UnsupportedProgram, match="'while', which runs its body an unknown number of times"):
        trace(UNKNOWN[name], X)
