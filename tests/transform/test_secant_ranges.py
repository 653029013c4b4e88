"""Sums in half precision are taken in single, and numbers near a dtype's largest one are split like any others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import relative
from jax import lax

import duat_jax as duat

USES = 1024
SINGLE = jnp.float32


def looked_up(table):
    return table[jnp.zeros(USES, int)].astype(SINGLE).sum()


SUMS = {
    "looked up": looked_up,
    "looked up, computed again": jax.checkpoint(looked_up),
    "looked up in a branch": lambda t: lax.cond(t.size > 1, looked_up, lambda t: 0 * t.astype(SINGLE).sum(), t),
    "broadcast": lambda t: jnp.broadcast_to(t[:1], (USES, 1, 2)).astype(SINGLE).sum(),
    "concatenated": lambda t: jnp.concatenate([t[:1]] * USES).astype(SINGLE).sum(),
    "multiplied": lambda t: (jnp.ones((USES, 1), t.dtype) @ t[:1]).astype(SINGLE).sum(),
    "read in every step": lambda t: lax.scan(
        lambda c, i: (c + lax.dynamic_slice(t, (0 * i, 0 * i), (1, 2)).astype(SINGLE).sum(), None),
        SINGLE(0),
        jnp.arange(USES),
    )[0],
    "carried": lambda t: lax.scan(
        lambda c, _: ((c[0], c[1] + c[0][0].astype(SINGLE).sum()), None), (t, SINGLE(0)), None, USES
    )[0][1],
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_what_is_used_many_times_has_its_whole_part(dtype):
    x, y = (dict.fromkeys(SUMS, z((2, 2), dtype)) for z in (jnp.ones, jnp.zeros))
    with jax.numpy_dtype_promotion("standard"):
        found = duat.secant(lambda x: sum(fn(x[name]) for name, fn in SUMS.items()))(x, y)
    for name, parts in found.parts.items():
        assert parts.dtype == dtype
        assert np.asarray(parts, float).tolist() == [[USES, USES], [0, 0]], name
    assert found.completeness.verdict != "fails"


def test_an_entry_of_many_windows_has_its_whole_part():
    uses, x = 300, jnp.ones(1, "bfloat16")

    def windows(z):
        padded = lax.pad(z, jnp.zeros((), z.dtype), [(uses - 1, uses - 1, 0)])
        return lax.reduce_window(padded, jnp.zeros((), z.dtype), lax.add, (uses,), (1,), "VALID").astype(SINGLE).sum()

    assert duat.secant(windows)(x, 0 * x).parts.tolist() == [uses]


LARGE = {
    "a product": (lambda x: x[0] * x[1], [1, 1], [2 / 3, 0.5], [1 / 4, 5 / 12]),
    "a quotient": (lambda x: x[0] / x[1], [1, 2], [2 / 3, 4], [1 / 8, 5 / 24]),
    "a maximum": (jnp.max, [1, 0], [2 / 3, 5 / 6], [1 / 4, -1 / 12]),
    "apart": (lambda x: x[0] / 2 + x[1], [1, 1], [-1, 1], [1, 0]),
    "a choice": (lambda x: jnp.where(x > 1e4, x * x[1], x)[0], [1, 0.5], [2 / 3, 0.25], [1 / 8, 5 / 24]),
}
"""Functions of a large number, two points, and the parts, in units of the large number."""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_numbers_near_the_largest_are_split_like_others(dtype):
    large, eps = 0.9 * float(jnp.finfo(dtype).max), float(jnp.finfo(dtype).eps)
    large = float(jnp.array(large, dtype))

    def points(k):
        return {name: jnp.array([large * case[k][0], case[k][1]], dtype) for name, case in LARGE.items()}

    x, y = points(1), points(2)
    x["a maximum"], y["a maximum"] = (jnp.array([large * z for z in LARGE["a maximum"][k]], dtype) for k in (1, 2))
    found = duat.secant(lambda x: sum(fn(x[name]) / 8 for name, (fn, *_) in LARGE.items()))(x, y)
    for name, parts in found.parts.items():
        scaled = np.asarray(parts, np.float64) / large * 8
        relative(scaled, np.asarray(LARGE[name][3]), within=16 * eps, message=name)
    assert found.completeness.verdict != "fails"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_midpoint_is_right_at_both_ends_of_the_range(dtype):
    """A factor moves by a quarter; a sum of two large ones, and halves of two small ones, are out of range."""
    for end in 2.0 ** np.array([jnp.finfo(dtype).minexp, jnp.finfo(dtype).maxexp - 1]):
        factors = jnp.array([1.25 * end, end], dtype)
        found = duat.secant(lambda x: (duat.point(x, "factor") * 0.5)[0], at="point")(factors[:1], factors[1:])
        (middle,) = jax.tree.leaves(found.middles)
        assert float(middle[0]) == 1.125 * end
