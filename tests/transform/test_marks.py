"""Marks are the identity: the compiled program with them is the program without them."""

import re

import jax
import jax.numpy as jnp
import pytest
from helpers import BLOCK_NAMES, make_input, make_stack, modern, recorded

import duat_jax as duat
from duat_jax.transform import marks

pytestmark = pytest.mark.usefixtures("optimised")


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


CASES = [("pre-norm", transformed) for transformed in TRANSFORMED] + [
    (block, transformed) for block in (*BLOCK_NAMES, modern) for transformed in ("jit", "remat") if block != "pre-norm"
]


@pytest.mark.parametrize(("block", "transformed"), CASES)
def test_marks_cost_nothing(block, transformed, monkeypatch):
    inputs = jnp.stack([make_input(key=0), make_input(key=1)])
    x = inputs[0] if transformed == "jit" else inputs

    def fn():
        return TRANSFORMED[transformed](make_stack(block, 2))

    with_marks = compiled(fn(), x)
    assert "name=attention.pattern" in str(jax.make_jaxpr(fn())(x))
    monkeypatch.setattr(marks, "bind_mark", lambda x, kind, name: x)
    assert "duat_mark" not in str(jax.make_jaxpr(fn())(x))
    assert compiled(fn(), x) == with_marks


def test_names_are_kept_and_numbered():
    def fn(x):
        x = duat.hold(x, "once")
        return duat.hold(duat.hold(x, "twice") + 1.0, "twice")

    _, dynamics = recorded(fn)(jnp.ones(2))
    assert list(map(str, dynamics.held)) == ["once", "twice", "twice[1]"]
    assert dynamics.held["twice[1]"].tolist() == [2.0, 2.0]
    with pytest.raises(duat.DuatError, match=r"2 marks are called 'twice': choose one of twice\[0\], twice\[1\]"):
        dynamics.held["twice"]
    with pytest.raises(KeyError, match="no mark is called 'thrice'; there are once, twice"):
        dynamics.held["thrice"]
