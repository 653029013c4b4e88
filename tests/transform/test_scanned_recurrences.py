"""Recurrences over tokens: with held gates they are linear maps over tokens, and no state of theirs is kept."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close

import duat_jax as duat

TOKENS, FEATURES, STATES = 7, 3, 2


def gates_of(x, states):
    """Return a time step of every feature, and the input and output weights of every state: all depend on the input."""
    keys, features = jax.random.split(jax.random.key(1), 3), x.shape[1]
    shapes = (features, features), (features, states), (features, states)
    step, into, out = (x @ jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True))
    return jax.nn.softplus(step), into, out


def decay(step, states):
    """Return the factor `a_n` of every feature's states."""
    return jnp.exp(-step[..., None] * jnp.arange(1.0, states + 1))


def scanned(x, states=STATES):
    """Compute a selective scan token by token, `h_n = a_n ⊙ h_{n-1} + u_n b_nᵀ`, `y_n = h_n c_n`."""
    held = [duat.hold(gate, name) for gate, name in zip(gates_of(x, states), "abc", strict=True)]

    def step(state, token):
        time, into, out, u = token
        state = decay(time, states) * state + u[:, None] * into
        return state, state @ out

    return jax.lax.scan(step, jnp.zeros((x.shape[1], states)), (*held, x))[1]


def associative(x, states=STATES):
    """Compute the same for all tokens at once."""
    step, into, out = (duat.hold(gate, name) for gate, name in zip(gates_of(x, states), "abc", strict=True))

    def combined(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    pairs = decay(step, states), x[..., None] * into[:, None]
    return jnp.einsum("nes,ns->ne", jax.lax.associative_scan(combined, pairs)[1], out)


def written_out(x):
    """Return the map as a matrix of blocks `C_n A_n ⋯ A_{k+1} B_k`, by the products of the proposition."""
    step, into, out = map(np.asarray, gates_of(x, STATES))
    factors = np.asarray(decay(step, STATES))
    tokens, features = x.shape
    blocks = np.zeros((tokens, features, tokens, features))
    for n in range(tokens):
        for k in range(n + 1):
            blocks[n, :, k, :] = np.diag((np.prod(factors[k + 1 : n + 1], axis=0) * into[k]) @ out[n])
    return blocks.reshape(x.size, x.size)


@pytest.mark.parametrize("layer", [scanned, associative])
def test_a_recurrence_is_the_product_of_its_held_gates(layer):
    x = jax.random.normal(jax.random.key(0), (TOKENS, FEATURES))
    form = duat.unroll(layer, x)
    close(form.input_map().dense(), written_out(x))
    assert form.completeness().verdict == "holds"


@pytest.mark.parametrize("layer", [scanned, associative])
def test_later_tokens_see_the_earlier_ones_through_the_states_alone(layer):
    x = jax.random.normal(jax.random.key(0), (TOKENS, FEATURES))
    blocks = duat.unroll(layer, x).input_map().dense()
    for n in range(1, TOKENS):
        ranks = [np.linalg.matrix_rank(blocks[n * FEATURES :, : n * FEATURES], tol=1e-9)]
        assert ranks <= [FEATURES * STATES] and not blocks[: n * FEATURES, n * FEATURES :].any()


@pytest.mark.parametrize("layer", [scanned, associative])
def test_table_and_difference_of_a_recurrence_sum(layer):
    x, y = jax.random.normal(jax.random.key(0), (2, TOKENS, FEATURES))

    def layers(x):
        return layer(x + layer(x)).sum()

    parts, split = duat.decompose(layers, x), duat.secant(layers)(x, y)
    assert parts.completeness.verdict == split.completeness.verdict == "holds"
    chex.assert_trees_all_close(parts.input.sum(), layers(x), rtol=1e-10)
    chex.assert_trees_all_close(split.parts.sum(), layers(x) - layers(y), rtol=1e-10)


def test_no_state_of_a_recurrence_is_kept():
    """Table and collapse need less memory than one state of every token, and a difference less than a gradient."""
    tokens, features, states = 256, 64, 16
    x = jax.ShapeDtypeStruct((tokens, features), jnp.float64)

    def number(x):
        return scanned(x, states)[-1, 0]

    asked = {
        "table": lambda x: duat.decompose(number, x).input,
        "collapse": lambda x: duat.collapse(number, x).linear.T(jnp.ones(())),
        "difference": lambda x: duat.secant(number)(x, 2 * x).parts,
        "gradient": jax.grad(number),
    }
    kept = {name: jax.jit(fn).lower(x).compile().memory_analysis().temp_size_in_bytes for name, fn in asked.items()}
    assert max(kept["table"], kept["collapse"]) < tokens * features * states * 8 / 2
    assert kept["difference"] < kept["gradient"]
