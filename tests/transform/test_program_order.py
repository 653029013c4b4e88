"""The compiled programs of two processes are the same, so that the cache on disk has them."""

import subprocess
import sys

LOWERED = """
import hashlib
import jax, jax.numpy as jnp
import duat_jax as duat
from duat_jax.forms.pre_activation import NeuronsAtTokens, read_by

def fn(x):
    for name in "abcdef":
        x = x + duat.term(jnp.tanh, 2 * x + duat.offset(jnp.ones(2), name), name)
    return x

x = jnp.ones((3, 2))
split = jax.jit(lambda x: duat.secant(lambda x: fn(x).sum(), at=("point", "activation"))(x, 2 * x).contributions)
neuron = NeuronsAtTokens(tuple(jnp.eye(6, dtype=bool)[:, :1]), *jnp.zeros((2, 1), int))
reads = jax.jit(lambda x: read_by(duat.record(fn)(x), neuron))
print([hashlib.sha256(program.lower(x).as_text().encode()).hexdigest() for program in (split, reads)])
"""


def test_the_order_of_sets_is_not_that_of_a_program(monkeypatch):
    def lowered(seed):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        return subprocess.run([sys.executable, "-c", LOWERED], capture_output=True, text=True, check=True).stdout

    assert lowered("1") == lowered("2")
