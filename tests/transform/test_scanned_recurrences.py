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


def scanned(x, states=STATES, start=jnp.zeros):
    """Compute a selective scan token by token, `h_n = a_n ⊙ h_{n-1} + u_n b_nᵀ`, `y_n = h_n c_n`."""
    held = [duat.hold(gate, name) for gate, name in zip(gates_of(x, states), "abc", strict=True)]

    def step(state, token):
        time, into, out, u = token
        state = decay(time, states) * state + u[:, None] * into
        return state, state @ out

    return jax.lax.scan(step, start((x.shape[1], states)), (*held, x))[1]


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
    assert kept["difference"] < kept["gradient"] / 2


def test_a_difference_in_the_weights_of_scanned_layers_keeps_a_stream_for_every_layer():
    """Blocks of layers would copy the weights that fill no block."""
    weights, x = jnp.ones((7, 8, 8)) / 8, jnp.ones(8)

    def number(weights):
        return jax.lax.scan(lambda x, w: (jnp.tanh(w @ x), None), x, weights)[0].sum()

    split = duat.secant(number)(weights, 2 * weights)
    chex.assert_trees_all_close(split.parts.sum(), number(weights) - number(2 * weights), rtol=1e-10)
    assert str(jax.make_jaxpr(lambda w: duat.secant(number)(w, 2 * w).parts)(weights)).count("= scan[") == 2


@pytest.mark.parametrize(("start", "scans"), [(jnp.zeros, 2), (jnp.ones, 3)])
def test_only_a_start_that_may_differ_from_zero_is_evaluated(start, scans):
    """A table runs a scan forwards and once in reverse; a third run is that of what has no mark."""
    x = jax.random.normal(jax.random.key(0), (TOKENS, FEATURES))

    def number(x):
        return scanned(x, start=start).sum()

    parts = duat.decompose(number, x)
    chex.assert_trees_all_close(parts.unmarked, number(x) - parts.input.sum(), atol=1e-12)
    assert str(jax.make_jaxpr(lambda x: duat.decompose(number, x).unmarked)(x)).count("= scan[") == scans


def test_a_scan_without_steps_gives_its_start_and_nothing_else():
    def states(x):
        def step(state, u):
            state = duat.stream(duat.hold(jnp.cos(state), "gate") * state + duat.term(jax.nn.relu, u, "unit"), "state")
            return state, state

        return jax.lax.scan(step, x, jnp.zeros((0, 2)))

    x, weights = jnp.array([1.0, -2.0]), jnp.array([3.0, 4.0])

    def number(x):
        last, all_states = states(x)
        return last @ weights + all_states.sum()

    assert duat.decompose(number, x).input.tolist() == duat.secant(number)(x, 0 * x).parts.tolist() == [3.0, -8.0]
    replayed = duat.replay(states, duat.record(states)(x).dynamics)(x)
    assert replayed[0].tolist() == x.tolist() and replayed[1].shape == (0, 2)
    assert duat.unroll(lambda x: states(x)[1], x).input_map().dense().shape == (0, 2)
