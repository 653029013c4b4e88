"""Scores that a mask hides at one input alone, with −∞, have a part wherever their exponentials or maxima are taken."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, weights_of
from jax import lax
from two_inputs import each

import duat_jax as duat

QUERIES, KEYS, VALUES, READOUT = weights_of((4, 3)), weights_of((5, 3), 3), weights_of((5, 2), 4), weights_of((4, 2), 5)
NEGATIVE = jnp.array(-jnp.inf)
AXIS = {"axis": -1, "keepdims": True}

MASKED = {
    "where": lambda s, kept: jnp.where(kept, s, -jnp.inf),
    "an array": lambda s, kept: jnp.where(kept, s, jnp.full_like(s, -jnp.inf)),
    "a constant": lambda s, kept: jnp.where(kept, s, NEGATIVE),
    "added": lambda s, kept: s + jnp.where(kept, 0.0, -jnp.inf),
    "a logarithm": lambda s, kept: s + jnp.log(kept.astype(s.dtype)),
    "a quotient": lambda s, kept: s - (1 / kept.astype(s.dtype) - 1),
}


def powers(s, shift=lambda s: s.max(**AXIS), power=jnp.exp):
    return power(s - shift(s))


NORMALISED = {
    "after the product": lambda s, v: (powers(s) @ v) / powers(s).sum(**AXIS),
    "with a small number": lambda s, v: powers(s) / (powers(s).sum(**AXIS) + 1e-9) @ v,
    "a stopped maximum": lambda s, v: (
        (powers(s, lambda s: lax.stop_gradient(s.max(**AXIS))) @ v) / powers(s).sum(**AXIS)
    ),
    "no maximum": lambda s, v: (jnp.exp(s) @ v) / jnp.exp(s).sum(**AXIS),
    "powers of two": lambda s, v: (powers(s, power=jnp.exp2) @ v) / powers(s, power=jnp.exp2).sum(**AXIS),
    "recognised": lambda s, v: jax.nn.softmax(s) @ v,
    "sigmoids": lambda s, v: jax.nn.sigmoid(s) @ v,
    "rectified": lambda s, v: jax.nn.relu(s) @ v,
    "a maximum": lambda s, v: s.max(**AXIS) * v[:1],
}


@pytest.mark.parametrize("how", [pytest.param(how, marks=[pytest.mark.slow] * (how != "where")) for how in MASKED])
def test_a_score_that_is_masked_at_one_input_alone_has_a_part(how):
    def attention(normalised):
        def fn(x):
            scores = MASKED[how](x["queries"] @ x["keys"].T, x["keys"][:, 0] > 0)
            return jnp.vdot(READOUT, normalised(scores, x["values"]))

        return fn

    functions = {name: attention(normalised) for name, normalised in NORMALISED.items()}
    x = {"queries": QUERIES, "keys": KEYS.at[:, 0].set(jnp.array([1.0, -1, 2, 1, -1])), "values": VALUES}
    y = {"queries": QUERIES[::-1], "keys": KEYS.at[:, 0].set(jnp.array([-1.0, 1, 1, 2, -2])), "values": 1.5 * VALUES}
    found, differences = each(functions, *(dict.fromkeys(functions, z) for z in (x, y)))
    assert found.completeness.verdict == "holds"
    assert all(np.isfinite(part).all() for part in jax.tree.leaves((found.parts, found.discontinuities)))
    close(found.difference, sum(differences.values()))
    labels = {label.split(" at ")[0] for label in found.discontinuities}
    assert labels >= {"exp", "exp2", "reduce_max", "logistic", "max", "softmax"}


def test_a_row_that_is_masked_altogether_at_one_input_is_a_jump_and_the_others_keep_their_parts():
    def fn(x):
        scores = x["queries"] @ KEYS.T
        scores = jnp.where(x["kept"][:, None] > 0, scores, jnp.finfo(scores.dtype).min)
        return jnp.vdot(READOUT, jax.nn.softmax(scores) @ VALUES)

    x = {"queries": QUERIES, "kept": jnp.array([1.0, -1, 1, 1])}
    y = {"queries": 2 * QUERIES, "kept": jnp.array([1.0, 1, 1, -1])}
    found = duat.secant(fn)(x, y)
    assert found.completeness.verdict == "holds"
    # Rows that no input hides have the parts that they have alone, those that one hides have none.
    rows = jnp.array([0, 2])
    alone = duat.secant(lambda q: jnp.vdot(READOUT[rows], jax.nn.softmax(q @ KEYS.T) @ VALUES))
    close(found.parts["queries"][rows], alone(QUERIES[rows], 2 * QUERIES[rows]).parts)
    assert not found.parts["queries"][jnp.array([1, 3])].any()
