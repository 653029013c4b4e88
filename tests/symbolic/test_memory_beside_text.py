"""A memory that reads nothing of the text: what vanishes, and what crosses into the text, proved and in numbers."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbolic.catalogue import derive
from symbolic.equality.definition import Definition
from symbolic.evaluation.bridge import to_jax
from symbolic.expressions.parameter import i, j
from symbolic.theorems.memory import STACK, M, T, crossings, memory, path_of_text
from symbolic.theorems.stream_stack import StreamStack
from symbolic.theorems.streams import streams

S, K = STACK, i + 1


def test_both_theorems_on_a_memory_are_proved():
    beside, constant = derive("memory")
    assert beside.proved and constant.proved
    assert not any(beside.conditions) and not any(constant.conditions)
    assert streams(S).proved  # the form that the first of them begins with


EVERY = StreamStack()  # without zeros
WRONG = {
    "the memory reads the text": (S.P(K, M, T), S.U(K, M, M) * S.P(i, M, T) + EVERY.U(K, M, T) * S.P(i, T, T)),
    "the memory's term reads the text": (S.B(K, M, T), S.F(K, M, M) * S.P(i, M, T) + EVERY.F(K, M, T) * S.P(i, T, T)),
    "a term of the text is written into the memory": (S.C(i, i, M, T), EVERY.G(i, M, T)),
    "the memory is read a layer late": (S.P(K, T, M), S.U(K, T, M) * S.P(K, M, M) + S.U(K, T, T) * S.P(i, T, M)),
    "the memory isn't read": (S.P(K, T, M), S.U(K, T, T) * S.P(i, T, M)),
    "a term of the memory isn't read": (S.C(j, K, T, M), S.U(K, T, T) * S.C(j, i, T, M)),
    "a term of the memory isn't written into the text": (S.C(i, i, T, M), 0 * S.G(i, T, M)),
    "the text is carried by nothing": (S.P(K, T, T), S.P(i, T, T)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_recursion_beside_a_memory_is_refused(name):
    left, right = WRONG[name]
    rules = tuple(Definition(r.left, right, r.variables, r.where) if r.left == left else r for r in S.recursions)
    assert rules != S.recursions
    assert not memory(rules).verified


TOKENS, SLOTS, FEATURES, OF_MEMORY, HEADS = 3, 4, 2, 5, 2


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_what_crosses_by_cross_attention_is_the_jacobian_of_the_text_by_the_memory(depth):
    rng = np.random.default_rng(depth)
    widths = TOKENS * FEATURES, SLOTS * OF_MEMORY
    draw = {
        "self": (TOKENS, TOKENS), "text": (FEATURES, FEATURES),
        "among": (SLOTS, SLOTS), "memory": (OF_MEMORY, OF_MEMORY),
        "D": (HEADS, TOKENS, SLOTS), "VO": (HEADS, OF_MEMORY, FEATURES),
    }  # fmt: skip
    layers = [{name: rng.normal(size=shape) / 2 for name, shape in draw.items()} for _ in range(depth)]

    def text(memory, x, reading):
        for number, w in enumerate(layers, 1):
            crossed = sum(D @ memory @ VO for D, VO in zip(w["D"], w["VO"], strict=True))
            x = x + w["self"] @ x @ w["text"] + (crossed if number in reading else 0)
            memory = memory + w["among"] @ memory @ w["memory"]
        return x

    def jacobian(reading):
        of = jax.jacobian(lambda y: text(y.reshape(SLOTS, OF_MEMORY), jnp.ones((TOKENS, FEATURES)), reading).ravel())
        return of(jnp.zeros(widths[1]))

    arrays = {}
    for number, w in enumerate(layers, 1):
        arrays[f"U[{number},{T},{T}]"] = np.eye(widths[0]) + np.kron(w["self"], w["text"].T)
        arrays[f"U[{number},{M},{M}]"] = np.eye(widths[1]) + np.kron(w["among"], w["memory"].T)
        arrays[f"U[{number},{T},{M}]"] = sum(np.kron(D, VO.T) for D, VO in zip(w["D"], w["VO"], strict=True))
    total = crossings(S, depth)
    terms = {str(number): total.at(number) for number in range(1, depth + 1)}
    definitions = (*S.recursions, *path_of_text(S))
    computed = to_jax({"P": S.P(depth, T, M), "sum": total, **terms}, jnp.tanh, definitions)(
        {name: jnp.array(array) for name, array in arrays.items()}
    )
    every = jacobian(range(1, depth + 1))
    expected = {"P": every, "sum": every, **{name: jacobian([int(name)]) for name in terms}}
    chex.assert_trees_all_close(computed, expected, rtol=1e-12, atol=1e-12)
