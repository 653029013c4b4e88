"""A function that cancels by itself isn't a fault of its split, and a wrong split of such a function is still one."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen
from jax import lax

import duat_jax as duat
from duat_jax.transform.secant import rules

WIDTH = 32
READ = np.random.default_rng(0).normal(size=WIDTH)


def centred(x):
    return x - x.mean(-1, keepdims=True)


def layer_norm(x):
    return centred(x) * lax.rsqrt((centred(x) ** 2).mean(-1, keepdims=True) + 1e-5)


def fast_norm(x):
    """Return Flax's layer norm, whose variance is `E[x²] − E[x]²`, far from zero."""
    parameters = {"scale": jnp.ones(WIDTH, x.dtype), "bias": jnp.zeros(WIDTH, x.dtype)}
    return linen.LayerNorm(dtype=x.dtype, param_dtype=x.dtype).apply({"params": parameters}, x + 3000) @ READ.astype(
        x.dtype
    )


def norm_by_squares(x):
    x = x + 3000
    variance = (x * x).mean() - x.mean() ** 2  # cancels
    return (x - x.mean()) / jnp.sqrt(variance) @ READ.astype(x.dtype)


CANCELS = {
    "a summed layer norm": lambda x: layer_norm(x).sum(),
    "the same in a scan": lambda x: lax.scan(lambda c, row: (c + layer_norm(row).sum(), None), 0 * x[0], x[None])[0],
    "the same in a branch": lambda x: lax.cond(True, lambda x: layer_norm(x).sum(), lambda x: x[0], x),
    "the same in a call": jax.jit(lambda x: layer_norm(x).sum()),
    "a centred softmax": lambda x: (jax.nn.softmax(x) - 1 / WIDTH).sum(),
    "a centred vector": lambda x: centred(x).sum(),
    "Flax's layer norm": fast_norm,
    "a norm by squares": norm_by_squares,
    "a large number, added and subtracted": lambda x: (
        ((x + 2.0**14) - 2.0**14) @ READ.astype(x.dtype) + (x[:1] * x[1:2])[0]
    ),
}
"""Functions whose rounding no part shows."""


@pytest.fixture(autouse=True)
def promotion():
    with jax.numpy_dtype_promotion("standard"):
        yield


def points(dtype):
    return (jax.random.normal(jax.random.key(k), (WIDTH,), jnp.float64).astype(dtype) for k in (1, 2))


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CANCELS)
def test_a_function_that_cancels_is_inconclusive_and_says_where(name, dtype):
    found = duat.secant(CANCELS[name])(*points(dtype)).completeness
    assert found.verdict == "inconclusive"
    if not found.within:
        assert "cancels" in found.note and "test_cancellation.py:" in found.cancels
    assert dtype == "float64" or not found.within
    assert jax.tree.structure(found) == jax.tree.structure(jax.tree.map(np.asarray, found))


def test_the_line_is_that_of_the_difference():
    lines, first = inspect.getsourcelines(norm_by_squares)
    line = first + next(i for i, line in enumerate(lines) if "# cancels" in line)
    with jax.numpy_dtype_promotion("strict"):
        found = duat.secant(norm_by_squares)(*points("float32")).completeness
    assert found.cancels.startswith("sub at ") and found.cancels.endswith(
        f"test_cancellation.py:{line} (norm_by_squares)"
    )


@pytest.mark.parametrize("off", [1e-1, 1e-4])
@pytest.mark.parametrize(
    ("name", "primitive"),
    [
        ("Flax's layer norm", "dot_general"),
        pytest.param("Flax's layer norm", "mul", marks=pytest.mark.slow),
        pytest.param("Flax's layer norm", "rsqrt", marks=pytest.mark.slow),
        ("a large number, added and subtracted", "dot_general"),
    ],
)
def test_a_wrong_rule_fails_though_the_function_cancels(monkeypatch, name, primitive, off):
    """Also where the fault is smaller than the function's rounding: in double precision it isn't."""
    rule = rules.changes

    def wrong(equation, operands, results, jump):
        found = rule(equation, operands, results, jump)
        return [c * (1 + off) if c is not None and equation.primitive.name == primitive else c for c in found]

    monkeypatch.setattr("duat_jax.transform.secant.difference.changes", wrong)
    # A new source line is a new program: nothing compiled with the right rule is used.
    fn = eval(f"lambda x: fn(x) + {off} * 0", {"fn": CANCELS[name]})
    found = duat.secant(fn)(*points("float32")).completeness
    assert found.verdict == "fails"
