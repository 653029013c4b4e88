"""Anyone's block: written in a few lines, read off, proved, unrolled, and evaluated beside the function."""

import jax
import jax.numpy as jnp
import pytest
from helpers import numbers

import duat_jax as duat
from symbolic import (
    Block,
    activation,
    diag,
    hadamard,
    held,
    identity,
    matrix,
    sizes,
    summed,
    vector,
)
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal
from symbolic.errors import NumbersDiffer, ShapeMismatch, SymbolicError
from symbolic.expressions.parameter import Parameter, Weight
from symbolic.theorems.residual_stack import i

N, M, K = 3, 4, 5  # tokens, features, neurons
d, n = sizes("d n")
A, F, G = matrix("A", d, d), matrix("F", n, d), matrix("G", d, n)
H, V, W, U = held("H", N, N), matrix("V", M, M), matrix("W", M, K), matrix("U", K, M)
g, r = held("g", N, K), held("r", N)
GATED = Block(lambda x: diag(r) * (x + H * x * V + hadamard(g, activation(x * W)) * U), shape=(N, M))
WEIGHTS = {"V": numbers(M, M), "W": numbers(M, K, key=1), "U": numbers(K, M, key=2)}
X = jnp.array(numbers(N, M, key=3))


def gated(x, weights=WEIGHTS, gate="g", scale="r"):
    pattern = duat.hold(jax.nn.softmax(x @ x.T), "H")
    y = x + pattern @ x @ weights["V"]
    y = (
        y
        + (duat.hold(jnp.tanh(x @ weights["W"]), gate) * duat.term(jax.nn.silu, x @ weights["W"], "mlp")) @ weights["U"]
    )
    return duat.hold(1 / jnp.sqrt((y * y).mean(-1)), scale)[:, None] * y


def test_the_parameters_of_a_block_are_read_off():
    block = Block(lambda x: x + A * (x + G * activation(F * x + vector("f", n))) + vector("a", d))
    s = block.stack
    table = {entry.left: entry.right for entry in block.parameters}

    def own(parameter):
        return Weight(parameter.letter, (i + 1,), *parameter.shape)

    expected = {
        s.W(i + 1, 1): identity(d) + own(A),
        s.b(i + 1, 3): own(vector("a", d)),
        s.W(i + 1, 2): own(F),
        s.b(i + 1, 2): own(vector("f", n)),
        s.W(i + 1, 3): own(A) * own(G),
    }
    assert table.keys() == expected.keys()
    assert all(equal(table[left], right) for left, right in expected.items())


def one_after_the_other(x):
    y = x + G * activation(F * x, "gelu")
    y = y + A * y
    return y + matrix("K", d, n) * activation(matrix("E", n, d) * y + vector("e", n), "tanh")


KINDS = {
    "one term": lambda x: x + G * activation(F * x),
    "no term": lambda x: x + A * x,
    "two terms": lambda x: x + G * activation(F * x) + A * G * activation(matrix("E", n, d) * x, "tanh"),
    "two terms of one pre-activation": lambda x: x + G * activation(F * x) + A * G * activation(F * x, "tanh"),
    "one term into another": one_after_the_other,
    "an activation inside an activation alone": lambda x: A * x + G * activation(F * G * activation(F * x)),
    "nothing of the stream": lambda x: vector("a", d),
    "the term alone": lambda x: activation(A * x),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_block_is_derived(kind):
    block = Block(KINDS[kind], name=kind)
    for derivation in (
        block.residual_terms(),
        block.recursions(),
        block.prove(),
        block.unroll(1),
        block.unroll(3),
        block.unroll(9),
        block.collapse(),
        block.contributions(),
    ):
        assert derivation.verified, derivation
        assert kind in derivation.title
    assert block.document().count(r"\begin{theorem}") == 1


@pytest.mark.parametrize("kind", ["one term", "two terms", "one term into another"])
def test_a_parameter_that_isnt_the_blocks_is_noticed(kind):
    right = Block(KINDS[kind]).parameters
    for k, entry in enumerate(right):
        block = Block(KINDS[kind])
        wrong = Definition(entry.left, 2 * entry.right + matrix("w", *entry.right.shape), entry.variables)
        block.parameters = (*right[:k], wrong, *right[k + 1 :])
        for derivation in (block.residual_terms(), block.prove(), block.unroll(2), block.unroll(6)):
            assert not derivation.verified, entry.left


def test_a_proof_shows_the_blocks_own_parameters():
    proof = str(Block(lambda x: x + G * activation(F * x)).prove())
    assert "W′" not in proof
    assert "Gᵢ₊₁ σ(Bᵢ₊₁ x′₀ + cᵢ₊₁)" in proof


def test_a_sum_over_any_number_of_heads_is_derived_and_evaluated():
    def heads(number, tokens, features):
        one = lambda x, h: held("H", tokens, tokens, h) * x * matrix("V", features, features, h)  # noqa: E731
        return Block(lambda x: x + summed(lambda h: one(x, h), 1, number), (tokens, features), "heads")

    any_number = heads(*sizes("heads N M"))
    for derivation in (any_number.residual_terms(), any_number.prove(), any_number.unroll(4), any_number.difference()):
        assert derivation.verified, derivation
    assert {p.lower[0] for p in any_number.written.atoms(Parameter) if p.letter in "HV"} == {i + 1}
    weights = {f"V[{h}]": jnp.array(numbers(M, M, key=h)) for h in (1, 2)}

    def layer(x):
        patterns = [duat.hold(jax.nn.softmax(sign * x @ x.T), f"H[{h}]") for h, sign in ((1, 1), (2, -1))]
        return x + sum(pattern @ x @ weights[f"V[{h}]"] for h, pattern in enumerate(patterns, 1))

    assert heads(2, N, M).verify([layer, layer], X, weights, {}).holds
    with pytest.raises(NumbersDiffer):
        heads(2, N, M).verify(layer, X, weights | {"V[2]": weights["V[1]"]}, {})


def test_parameters_get_the_index_of_their_layer_and_shared_ones_dont():
    memory = matrix("m", 2, M)
    block = Block(lambda x: H * x * V + held("D", N, 2) * memory * V, shape=(N, M), shared=("m",))
    assert {str(parameter) for parameter in block.weights} == {"Vᵢ₊₁", "m"}
    assert {str(parameter) for parameter in block.held} == {"Hᵢ₊₁", "Dᵢ₊₁"}


@pytest.mark.parametrize(
    ("layer", "shape", "error", "words"),
    [
        (lambda x: F * x, None, ShapeMismatch, ("n × 1", "one shape")),
        (lambda x: x * V * W, (N, M), ShapeMismatch, ("3 × 4", "3 × 5")),
        (lambda x: 3, None, SymbolicError, ("3", "matrix expression")),
        (lambda x: diag(x) * A * x, None, SymbolicError, ("more than once", "diag(held('g', d))")),
        (
            lambda x: G * diag(F * x) * activation(F * x),
            None,
            SymbolicError,
            ("has to be held", "held('g', n)"),
        ),
        (lambda x: x * x.T * x, (N, M), SymbolicError, ("held('H', 3, 3)",)),
        (lambda x: A * x + matrix("A", d, n) * activation(F * x), None, ShapeMismatch, ("two shapes",)),
        (lambda x: A.inverse() * x, None, SymbolicError, ("no normal form",)),
    ],
    ids=[
        "another shape",
        "another shape of a matrix",
        "a number",
        "the stream twice",
        "a gate that isn't held",
        "a pattern that isn't held",
        "one letter, two shapes",
        "an operation without a symbol",
    ],
)
def test_what_is_no_block_is_refused_by_name(layer, shape, error, words):
    with pytest.raises(error) as caught:
        Block(layer, shape).residual_terms()
    assert all(word in str(caught.value) for word in words), caught.value


def test_the_difference_of_a_sum_over_heads_moves_with_what_is_held():
    tokens, features, number = sizes("N M n")

    def head(x, h):
        return held("H", tokens, tokens, h) * x * matrix("V", features, features, h)

    shown = str(Block(lambda x: summed(lambda h: head(x, h), 1, number), (tokens, features)).difference())
    assert "ΔW′ᵢ₊₁,₁ = Σ[h=1..n] ΔHᵢ₊₁,ₕ ⊗ Vᵢ₊₁,ₕ.T" in shown
