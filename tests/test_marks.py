"""Marks are the identity: the compiled program with them is the program without them."""

import re

import jax
import jax.numpy as jnp
import pytest
from helpers import BLOCK_NAMES, make_input, make_stack

import duat_jax as duat
from duat_jax import marks
from duat_jax.nn import mlp


def compiled(fn, *arguments):
    """Return the optimised program without names and source lines."""
    text = jax.jit(fn).lower(*arguments).compile().as_text()
    text = re.sub(r", metadata=\{[^}]*\}", "", text[text.index("\n%") if "\n%" in text else 0 :])
    return re.sub(r"[%]?[\w\-]+(\.[\w\-]+)*\.\d+", "name", text)


def scanned(stack):
    blocks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *stack.blocks)

    def run(x):
        return jax.lax.scan(lambda x, block: (duat.stream(block(x), "layer"), None), x, blocks)[0]

    return run


TRANSFORMED = {
    "jit": lambda stack: lambda x: stack(x),
    "vmap": lambda stack: jax.vmap(stack),
    "grad": lambda stack: jax.grad(lambda x: jax.vmap(stack)(x).sum()),
    "scan": lambda stack: lambda x: jax.vmap(scanned(stack))(x),
    "remat": lambda stack: jax.grad(lambda x: jax.vmap(jax.checkpoint(stack))(x).sum()),
}


@pytest.mark.parametrize("transformed", TRANSFORMED)
@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_marks_cost_nothing(block, transformed, monkeypatch):
    stack = make_stack(block, 2)
    x = jnp.stack([make_input(key=0), make_input(key=1)])
    fn = TRANSFORMED[transformed](stack)
    with_marks = compiled(fn, x if transformed != "jit" else x[0])
    traced = str(jax.make_jaxpr(fn)(x if transformed != "jit" else x[0]))
    assert "name=duat/hold/attention.pattern" in traced

    jax.clear_caches()
    monkeypatch.setattr(marks, "checkpoint_name", lambda x, name: x)
    monkeypatch.setattr(mlp, "term", lambda activation, z, name, outer: outer(activation(z)))
    fn = TRANSFORMED[transformed](stack)
    arguments = x if transformed != "jit" else x[0]
    assert "duat/" not in str(jax.make_jaxpr(fn)(arguments))
    assert compiled(fn, arguments) == with_marks


def test_names_are_kept_and_numbered():
    def fn(x):
        x = duat.hold(x, "once")
        return duat.hold(duat.hold(x, "twice") + 1.0, "twice")

    _, dynamics = duat.record(fn)(jnp.ones(2))
    assert set(dynamics.held) == {"once", "twice/0", "twice/1"}
    assert dynamics.held["twice/1"].tolist() == [2.0, 2.0]
