"""Scalars: what flows is looked for in them too, and where they stand still they work like any other letter."""

import jax
import jax.numpy as jnp
import pytest
from helpers import close, numbers
from sympy import Float, Integer, Rational, Symbol, Trace, exp, oo, sqrt

import duat_jax as duat
from symbolic import (
    Block,
    activation,
    diag,
    equal,
    held,
    held_scalar,
    kronecker,
    matrix,
    normal_form,
    ones,
    scalar,
    sizes,
    summed,
    typeset,
    vector,
)
from symbolic.errors import NumbersDiffer, SymbolicError
from symbolic.evaluation.bridge import to_jax

N, M, K = 3, 4, 5
d, n = sizes("d n")
A, F, G, Q, V = matrix("A", d, d), matrix("F", n, d), matrix("G", d, n), matrix("Q", d, d), matrix("V", d, d)
alpha, beta = scalar("alpha"), scalar("beta")

FLOWING = {
    "an entry of the stream": lambda x: x + x[0, 0] * x,
    "an entry by its only index": lambda x: x + x[0] * A * x,
    "the root mean square, not held": lambda x: ((x.T * x)[0, 0] / d) ** Rational(-1, 2) * x,
    "a score": lambda x: x + (x.T * Q * x)[0, 0] * V * x,
    "a score as a Kronecker product": lambda x: x + kronecker(x.T * Q * x, V * x),
    "inside an activation": lambda x: x + G * activation(x[0] * F * x),
    "a trace": lambda x: x + Trace(x * x.T) * x,
    "an entry of an activation": lambda x: x + activation(F * x)[0] * A * x,
    "a sum in a coefficient": lambda x: (1 + alpha * x[1]) * A * x,
    "a quotient": lambda x: A * x / (1 + (x.T * x)[0, 0]),
    "a scalar of each head": lambda x: x + summed(lambda h: (x.T * matrix("Q", d, d, h) * x)[0, 0] * V * x, 1, 2),
}


@pytest.mark.parametrize("kind", FLOWING)
def test_a_number_that_is_made_of_the_stream_is_refused_with_what_to_hold(kind):
    with pytest.raises(SymbolicError, match=r"held_scalar\('a'\) for .*x′"):
        Block(FLOWING[kind])


@pytest.mark.parametrize(
    ("layer", "shape", "words"),
    [
        (lambda x: diag(x) * A * x, None, "diag(held('g', d)) for diag(x′ᵢ)"),
        (lambda x: G * diag(F * x) * activation(F * x), None, "diag(held('g', n)) for diag(Fᵢ₊₁ x′ᵢ)"),
        (lambda x: x * x.T * x, (N, M), "held('H', 3, 3) for xᵢ xᵢ.T"),
        (lambda x: x + x * matrix("Q", M, M) * x.T * x * matrix("V", M, M), (N, M), "held('H', 3, 3) for xᵢ Q"),
        (lambda x: matrix("R", N, M) * x.T * matrix("S", N, M), (N, M), "can't flow, transposed"),
    ],
)
def test_what_has_to_be_held_is_named(layer, shape, words):
    with pytest.raises(SymbolicError) as caught:
        Block(layer, shape)
    assert words in str(caught.value), caught.value


STANDING = {
    "a scaled residual": lambda x: alpha * x + A * x,
    "a gate that starts at zero": lambda x: x + alpha * (G * activation(F * x)),
    "inside an activation": lambda x: x + G * activation(alpha * F * x + beta * vector("f", n)),
    "an entry of a weight": lambda x: x + vector("a", 2)[1] * A * x,
    "an entry of what is held": lambda x: x + held("a", 2)[1] * A * x,
    "a number that is held": lambda x: x + held_scalar("a") * A * x,
    "a root": lambda x: x + A * x / alpha ** Rational(1, 2),
    "a trace of a weight": lambda x: x + Trace(A) * A * x,
    "of each head": lambda x: x + summed(lambda h: scalar("a", h) * matrix("V", d, d, h) * x, 1, n),
    "a float": lambda x: 0.5 * x + 0.1 * A * x,
}


@pytest.mark.parametrize("kind", STANDING)
def test_a_number_that_stands_still_or_is_held_is_derived(kind):
    block = Block(STANDING[kind], name=kind)
    everything = (
        block.residual_terms(), block.recursions(), block.prove(), block.unroll(2), block.collapse(),
        block.contributions(), block.difference(),
    )  # fmt: skip
    for derivation in everything:
        assert derivation.verified, derivation
    assert block.document().count(r"\begin{theorem}") == 1


W = {"V": numbers(M, M), "F": numbers(M, K, key=1), "G": numbers(K, M, key=2), "f": numbers(K, key=3), "alpha": 1.7}
X = jnp.array(numbers(N, M, key=4))


def deep_norm(x, weights=W):
    y = weights["alpha"] * x + duat.hold(jax.nn.softmax(x @ x.T), "H") @ x @ weights["V"]
    y = duat.hold(1 / jnp.sqrt((y * y).mean(-1)), "r")[:, None] * y
    inside = y @ weights["F"] + duat.offset(jnp.asarray(weights["f"]), "f")
    return weights["alpha"] * y + duat.term(jax.nn.gelu, inside, "mlp") @ weights["G"]


def deep_norm_block():
    v, w1, w2 = matrix("V", M, M), matrix("F", M, K), matrix("G", K, M)

    def layer(x):
        y = diag(held("r", N)) * (alpha * x + held("H", N, N) * x * v)
        return alpha * y + activation(y * w1 + ones(N) * vector("f", K).T) * w2

    return Block(layer, (N, M), name="DeepNorm block")


def re_zero(x, weights=W):
    return x + weights["alpha"] * duat.term(jnp.tanh, x @ weights["F"], "mlp") @ weights["G"]


def re_zero_block():
    return Block(lambda x: x + alpha * activation(x * matrix("F", M, K)) * matrix("G", K, M), (N, M), name="ReZero")


@pytest.mark.parametrize(
    ("block", "layer", "sigma"), [(deep_norm_block(), deep_norm, jax.nn.gelu), (re_zero_block(), re_zero, jnp.tanh)]
)
def test_deep_norm_and_re_zero_are_their_functions(block, layer, sigma):
    assert block.prove().verified
    others = W | {"alpha": jnp.array(0.3)}
    assert block.verify([layer, lambda x: layer(x, others)], X, [W, others], sigma).holds
    with pytest.raises(NumbersDiffer):
        block.verify(layer, X, W | {"alpha": 1.7 + 1e-9}, sigma)


def test_a_number_is_held_by_a_mark_of_its_name():
    block = Block(lambda x: x + held_scalar("a") * x * matrix("V", M, M), (N, M))

    def layer(x):
        return x + duat.hold(jnp.tanh((x * x).mean()), "a") * x @ W["V"]

    assert block.verify([layer, layer], X, W, {}).holds


def test_scalars_have_the_values_that_jax_gives_them():
    R, u = matrix("R", 3, 3), vector("u", 3)
    arrays = {"R": jnp.array(numbers(3, 3)), "u": jnp.array(numbers(3, key=1)), "alpha": jnp.array(2.5)}
    r, v = arrays["R"], arrays["u"]
    cases = {
        "scaled": (alpha * R, 2.5 * r),
        "power": (alpha**3 * R / 2, 2.5**3 / 2 * r),
        "root": (R / alpha ** Rational(1, 2), r / jnp.sqrt(2.5)),
        "entry": (R[0, 2] * u, r[0, 2] * v),
        "last": (u[-1] * R, v[-1] * r),
        "inner": ((u.T * R * u)[0, 0] * R, (v @ r @ v) * r),
        "trace": (Trace(R * R) * u, jnp.trace(r @ r) * v),
        "sum": ((1 + alpha * u[1]) * u, (1 + 2.5 * v[1]) * v),
        "cube": (R**3, r @ r @ r),
        "ones": ((ones(3).T * u)[0, 0] * ones(3), v.sum() * jnp.ones(3)),
    }
    found = to_jax({name: expression for name, (expression, _) in cases.items()}, jnp.tanh)(arrays)
    for name, (_, expected) in cases.items():
        close(found[name], expected)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: oo * A, "isn't finite"),
        (lambda: float("nan") * A, "isn't finite"),
        (lambda: (0.5 * alpha) * A, "Rational"),
        (lambda: (0.5 * d + 1e-17 * d) * A, "Rational"),
        (lambda: normal_form(exp(alpha) * A), "scalar('a')"),
        (lambda: normal_form(alpha**alpha * A), "scalar('a')"),
        (lambda: A ** Rational(1, 2), "whole number"),
        (lambda: A**-1, "whole number"),
        (lambda: F**2, "don't multiply"),
        (lambda: to_jax(Symbol("g") * matrix("R", 2, 2), jnp.tanh)({"R": jnp.eye(2)}), "scalar('g')"),
    ],
)
def test_a_coefficient_that_has_no_meaning_is_refused(make, words):
    with pytest.raises(SymbolicError) as caught:
        make()
    assert words in str(caught.value), caught.value


def test_floats_are_the_numbers_that_are_written():
    for number in (0.1, 1e-17, 0.333, 2.5e300, -0.75):
        assert equal(number * A, Rational(repr(number)) * A)
        assert float(Rational(repr(number))) == number
    assert equal(Float("0.1", 30) * A, Rational(Float("0.1", 30)) * A)
    assert not equal(0.5 * A + 1e-17 * A, 0.5 * A)
    assert equal(sqrt(d) * A / sqrt(d), A) and equal(A / Integer(2), 0.5 * A)


def test_scalars_are_printed_as_they_are_read():
    u, v = vector("u", d), vector("v", d)
    assert str(alpha * A) == "α A" and typeset(alpha * A) == r"\alpha \mathbf{A}"
    assert str(u[0] * A) == "u[1] A" and typeset(u[0] * A) == r"\left(\mathbf{u}\right)_{1} \mathbf{A}"
    assert str((u.T * v)[0, 0] * A) == "(u.T v) A"
    assert str(normal_form(2 * alpha * beta * A * (u.T * v)[0, 0]).expression()) == "2 (u.T v) α β A"
