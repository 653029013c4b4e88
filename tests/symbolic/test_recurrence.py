"""A recurrence over tokens with held gates is a matrix: its blocks, ranks and densities, proved and in numbers."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbolic.catalogue import derive
from symbolic.equality.definition import Definition
from symbolic.evaluation.bridge import to_jax
from symbolic.expressions.parameter import i, j
from symbolic.theorems.recurrence import BLOCKS, PATH, A, B, C, D, W, carried, recurrence


def test_the_theorems_on_recurrences_are_proved():
    derivations = derive("recurrence")
    assert len(derivations) == 3
    for derivation in derivations:
        assert derivation.proved and not any(derivation.conditions)


N = i + 1
WRONG = {
    "the state is carried by the token before": (PATH, 1, A(i) * carried(j, i)),
    "the order of the factors": (PATH, 1, carried(j, i) * A(N)),
    "the state isn't carried": (PATH, 1, carried(j, i)),
    "a token is read before it is written": (BLOCKS, 0, D(i)),
    "a token doesn't pass the state": (BLOCKS, 0, C(i) * B(i)),
    "a token is carried once too often": (BLOCKS, 1, C(N) * A(N) * carried(j, N) * B(j)),
    "a token is read by its own matrix": (BLOCKS, 1, C(j) * carried(j, N) * B(j)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_matrix_of_a_recurrence_is_refused(name):
    rules, number, right = WRONG[name]
    right_one = rules[number]
    wrong = list(rules)
    wrong[number] = Definition(right_one.left, right, right_one.variables, right_one.where)
    assert not (recurrence(path=tuple(wrong)) if rules is PATH else recurrence(blocks=tuple(wrong))).verified


def draw(tokens, state, features, seed):
    """Return random matrices of a recurrence by token."""
    rng = np.random.default_rng(seed)
    shapes = {"A": (state, state), "B": (state, features), "C": (features, state), "D": (features, features)}
    return {name: rng.normal(size=(tokens, *shape)) / state**0.5 for name, shape in shapes.items()}


def by_scan(matrices):
    """Return the matrix of a recurrence on all tokens, as JAX differentiates its scan."""
    tokens, features, state = matrices["C"].shape

    def outputs(u):
        def step(h, of_token):
            a, b, c, d, u = of_token
            h = a @ h + b @ u
            return h, c @ h + d @ u

        of_tokens = tuple(jnp.array(matrices[name]) for name in "ABCD")
        return jax.lax.scan(step, jnp.zeros(state), (*of_tokens, u.reshape(tokens, features)))[1].ravel()

    return np.array(jax.jacobian(outputs)(jnp.zeros(tokens * features)))


def after(matrix, n, features):
    """Return the block of the rows of tokens after n and the columns of tokens up to n."""
    return matrix[n * features :, : n * features]


TOKENS, STATE, FEATURES = 5, 2, 3


def test_the_blocks_are_those_of_the_scan():
    matrices = draw(TOKENS, STATE, FEATURES, 0)
    arrays = {f"{name}[{n}]": jnp.array(each[n - 1]) for name, each in matrices.items() for n in range(1, TOKENS + 1)}
    places = {f"{row},{column}": W(row, column) for row in range(1, TOKENS + 1) for column in range(1, TOKENS + 1)}
    blocks = to_jax(places, jnp.tanh, (*PATH, *BLOCKS))(arrays)
    computed = np.block([[blocks[f"{r},{c}"] for c in range(1, TOKENS + 1)] for r in range(1, TOKENS + 1)])
    chex.assert_trees_all_close(computed, by_scan(matrices), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_later_tokens_read_earlier_ones_through_as_many_numbers_as_the_states_of_all_layers_have(layers):
    tokens, features = 6, 4
    states = [1, 2, 1][:layers]
    path = np.eye(tokens * features)
    rng = np.random.default_rng(layers)
    for state in states:
        values, outputs = (np.kron(np.eye(tokens), rng.normal(size=(features, features))) for _ in range(2))
        path = (np.eye(len(path)) + outputs @ by_scan(draw(tokens, state, features, state)) @ values) @ path
    for n in range(1, tokens):
        full = min(n, tokens - n) * features
        assert np.linalg.matrix_rank(after(path, n, features)) == min(sum(states), full)
        assert np.linalg.matrix_rank(path[: n * features, n * features :]) == 0


def test_attention_with_held_patterns_has_no_such_bound():
    tokens, features = 6, 4
    rng = np.random.default_rng(0)
    heads = [(np.tril(rng.uniform(size=(tokens, tokens))), rng.normal(size=(features, features))) for _ in range(4)]
    path = np.eye(tokens * features) + sum(np.kron(pattern, value.T) for pattern, value in heads)
    assert np.linalg.matrix_rank(after(path, 3, features)) == 3 * features


def test_a_scan_of_every_channel_by_itself_has_a_share_of_entries_of_one_over_the_channels():
    tokens, channels, state = 4, 3, 2
    rng = np.random.default_rng(1)
    matrices = {name: np.zeros((tokens, *shape)) for name, shape in (
        ("A", (channels * state,) * 2), ("B", (channels * state, channels)), ("C", (channels, channels * state)),
        ("D", (channels, channels)),
    )}  # fmt: skip
    for n in range(tokens):
        matrices["A"][n] = np.diag(rng.uniform(size=channels * state))
        for c in range(channels):
            places = slice(c * state, (c + 1) * state)
            matrices["B"][n, places, c], matrices["C"][n, c, places] = rng.normal(size=(2, state))
    assert np.mean(by_scan(matrices) != 0) == pytest.approx((tokens + 1) / (2 * tokens * channels))


def test_one_decay_gives_attention_with_a_pattern():
    tokens, state, features = 4, 3, 2
    rng = np.random.default_rng(2)
    decay, b, c = rng.uniform(size=tokens), rng.normal(size=(tokens, state)), rng.normal(size=(tokens, state))
    value = rng.normal(size=(features, features))

    def outputs(u):
        def step(memory, of_token):
            a, b, c, u = of_token
            memory = a * memory + jnp.outer(b, u @ value)
            return memory, memory.T @ c

        of_tokens = *map(jnp.array, (decay, b, c)), u.reshape(tokens, features)
        return jax.lax.scan(step, jnp.zeros((state, features)), of_tokens)[1].ravel()

    whole = np.array(jax.jacobian(outputs)(jnp.zeros(tokens * features)))
    decays = [[np.prod(decay[m + 1 : n + 1]) if m <= n else 0 for m in range(tokens)] for n in range(tokens)]
    chex.assert_trees_all_close(whole, np.kron((c @ b.T) * decays, value.T), rtol=1e-12, atol=1e-12)
    assert np.mean(whole != 0) == pytest.approx((tokens + 1) / (2 * tokens))
