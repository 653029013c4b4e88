"""Attention between two inputs: the pattern's secant, for symbols and in numbers, and a real layer's output."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_input, make_stack
from sympy import ImmutableMatrix

from duat_jax.nn import attention_mask
from symbolic.equality.two_inputs import change, midpoint
from symbolic.errors import SymbolicError
from symbolic.evaluation.bridge import name_of, to_jax
from symbolic.expressions.parameter import Parameter
from symbolic.vectorisation import secant
from symbolic.vectorisation.secant import attention_difference, softmax_moves_by_its_secant

EPS = np.finfo(np.float64).eps
ATTENTION = {step.rule: step.right for step in attention_difference().steps}


def test_attention_between_two_inputs_is_proved():
    assert attention_difference().verified


@pytest.mark.parametrize("keys", [1, 2, 3, 4])
def test_the_pattern_moves_by_its_secant_entry_by_entry(keys):
    assert softmax_moves_by_its_secant(keys)


WRONG_SECANTS = {
    "without the sum": lambda means: ImmutableMatrix.diag(*means),
    "the sum not divided": lambda means: (
        ImmutableMatrix.diag(*means) - ImmutableMatrix(means) * ImmutableMatrix(means).T
    ),
    "a wrong sign": lambda means: -secant_of(means),
    "the mean's reciprocal": lambda means: secant_of([1 / mean for mean in means]),
}
secant_of = secant.softmax_secant


@pytest.mark.parametrize("wrong", WRONG_SECANTS.values(), ids=WRONG_SECANTS)
def test_a_wrong_secant_of_the_pattern_is_refused(wrong, monkeypatch):
    monkeypatch.setattr(secant, "softmax_secant", wrong)
    assert not softmax_moves_by_its_secant(2)
    assert not attention_difference(2).verified


def test_a_row_of_no_keys_is_refused():
    with pytest.raises(SymbolicError, match="keys = 0"):
        attention_difference(0)


def logarithmic_mean(p, q):
    """`(p − q) / (log p − log q)`, and zero where a key is masked at both inputs."""
    apart = jnp.log(jnp.where(p > 0, p, 1)) - jnp.log(jnp.where(q > 0, q, 1))
    return jnp.where(apart == 0, p, (p - q) / jnp.where(apart == 0, 1, apart))


def secant_matrix(p, q):
    """The matrix that the derivation prints, for one row of the pattern at two inputs."""
    means = logarithmic_mean(p, q)
    arrays = {"L": means, "1": jnp.ones_like(means), "w": 1 / means.sum(keepdims=True)[None]}
    return to_jax(ATTENTION["the secant's matrix"], jnp.exp)(arrays)


@pytest.mark.parametrize(
    ("s", "r"),
    [([0.3, -1.0, 2.0], [1.0, 0.5, -0.2]), ([0.0, -60.0, -60.0], [-60.0, 0.0, -60.0]), ([7.0], [-3.0])],
    ids=["near", "maxima 60 apart", "one key"],
)
def test_the_pattern_moves_by_its_secant_in_numbers(s, r):
    s, r = jnp.array(s), jnp.array(r)
    p, q = jax.nn.softmax(s), jax.nn.softmax(r)
    assert float(jnp.abs(secant_matrix(p, q) @ (s - r) - (p - q)).max()) <= 8 * EPS * float(1 + jnp.abs(s - r).max())


def both(letter, at_one, at_other):
    """The change and the midpoint of a letter."""
    p = Parameter(letter, (), *at_one.shape)
    return {name_of(change(p)): at_one - at_other, name_of(midpoint(p)): (at_one + at_other) / 2}


@pytest.mark.parametrize("causal", [True, False])
def test_attention_moves_as_it_is_derived(causal):
    stack, x, y = make_stack("pre-norm", 1, causal=causal), make_input(5), make_input(5, key=5)
    layer, mask = stack.blocks[0].attention, attention_mask(5, causal=causal)
    value = layer.value.kernel[...].reshape(x.shape[1], layer.heads, -1).transpose(1, 0, 2)
    output = layer.output.kernel[...].reshape(layer.heads, -1, x.shape[1])
    scores_move, output_moves = (
        to_jax(ATTENTION[rule], jnp.exp) for rule in ("the change of the scores", "the change of the output")
    )
    visible = jnp.ones((5, 5), bool) if mask is None else mask
    moved = jnp.zeros_like(x)
    for h in range(layer.heads):
        queries, keys = (
            [part(at).reshape(5, layer.heads, -1)[:, h] for at in (x, y)] for part in (layer.query, layer.key)
        )
        arrays = both("Q", *queries) | both("K", *keys)
        s, r = (jnp.where(visible, layer.scale * q @ k.T, -jnp.inf) for q, k in zip(queries, keys, strict=True))
        here, there = jax.nn.softmax(s), jax.nn.softmax(r)
        rows = zip(here, there, layer.scale * scores_move(arrays), strict=True)
        changed = jnp.stack([secant_matrix(p, q) @ change_of_scores for p, q, change_of_scores in rows])
        arrays = both("H", here, there) | both("x", x, y) | {"W[VO]": value[h] @ output[h]}
        arrays[name_of(change(Parameter("H", (), 5, 5)))] = changed
        moved = moved + output_moves(arrays)
    expected = layer(x) - layer(y)
    assert float(jnp.abs(moved - expected).max()) <= 8 * EPS * 10 * float(1 + jnp.abs(expected).max())
