"""A block's formulas beside the function that they describe: equal, or the part that differs is named."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_input, make_stack, near, numbers
from test_blocks import GATED, WEIGHTS, A, K, M, N, U, V, W, X, d, gated

import duat_jax as duat
from duat_jax.nn import BLOCKS as MODULES
from duat_jax.verification.networks import networks
from duat_jax.verification.routes import block_arrays, held_by_layer, symbolic_block
from symbolic import (
    Block,
    activation,
    held,
    matrix,
    ones,
    summed,
    vector,
)
from symbolic.blocks import transformer
from symbolic.blocks.transformer import BLOCKS, transformer_block
from symbolic.errors import NumbersDiffer, SymbolicError
from symbolic.evaluation.bridge import to_jax
from symbolic.theorems.residual_stack import i


def test_a_gated_block_is_the_function():
    found = GATED.verify([gated, gated, gated], X, WEIGHTS, jax.nn.silu)
    assert found.holds
    assert {row.layer for row in found.rows} == {1, 2, 3, None}
    assert {row.reference for row in found.rows} == {"the function", "record and replay", "the functions"}
    assert all(row.tolerance < 1e-12 for row in found.rows)


def test_terms_are_matched_in_whatever_order_the_function_has_them():
    block = Block(lambda x: x + activation(x * W, "tanh") * U + activation(x * matrix("E", M, K), "silu") * U, (N, M))
    weights = WEIGHTS | {"E": numbers(M, K, key=4)}

    def the_other_first(x):
        silu = duat.term(jax.nn.silu, x @ weights["E"], "one")
        return x + duat.term(jnp.tanh, x @ weights["W"], "two") @ weights["U"] + silu @ weights["U"]

    functions = {"tanh": jnp.tanh, "silu": jax.nn.silu}
    assert block.verify(the_other_first, X, weights, functions).holds


@pytest.mark.parametrize(
    ("lie", "formula"),
    [
        (lambda x: gated(x, WEIGHTS | {"V": WEIGHTS["V"] + 1e-9}), "W'1 v"),
        (lambda x: gated(x, WEIGHTS | {"U": WEIGHTS["U"] * (1 + 1e-9)}), "W'3 h"),
        (lambda x: gated(x) + duat.offset(jnp.full(M, 1e-9), "bias"), "b'3"),
        (lambda x: gated(x, WEIGHTS | {"W": WEIGHTS["W"] + 1e-9}), "W'2 v"),
    ],
    ids=["path", "outer", "bias", "inner"],
)
def test_a_function_that_isnt_the_block_is_named(lie, formula):
    with pytest.raises(NumbersDiffer) as caught:
        GATED.verify(lie, X, WEIGHTS, jax.nn.silu)
    wrong = [line for line in str(caught.value).splitlines() if line.startswith("✗")]
    assert any(formula in line for line in wrong), caught.value
    assert any("Eq. 20" in line for line in wrong)


def test_every_missing_array_is_named_at_once():
    with pytest.raises(SymbolicError) as caught:
        GATED.verify(lambda x: gated(x, gate="other"), X, {"V": WEIGHTS["V"]}, jax.nn.silu)
    for missing in ("U (5 × 4) in weights", "W (4 × 5) in weights", "g (3 × 5) in hold", "held are H, other, r"):
        assert missing in str(caught.value)


def test_another_number_of_terms_is_named():
    def two(x):
        return gated(x) + duat.term(jnp.tanh, x, "another")

    with pytest.raises(NumbersDiffer, match="2 terms and the block 1"):
        GATED.verify(two, X, WEIGHTS, jax.nn.silu)


ZEROS, ONES = jnp.zeros((N, M)), jnp.ones((N, M))
PLAIN = Block(lambda x: x + x * V + activation(x * W) * U, (N, M))


def plain(x, weights=WEIGHTS, sigma=jax.nn.relu):
    return x + x @ weights["V"] + duat.term(sigma, x @ weights["W"], "mlp") @ weights["U"]


@pytest.mark.parametrize(
    ("x", "letter", "wrong"),
    [
        (ZEROS, "W", WEIGHTS["W"] + 1),
        (ZEROS, "U", WEIGHTS["U"] + 1),
        (ONES, "V", WEIGHTS["V"][::-1]),
        (-jnp.abs(X), "U", WEIGHTS["U"] * 2),
    ],
    ids=["inner at zero", "outer at zero", "rows that are exchanged", "outer of what is nearly off"],
)
def test_a_map_that_is_wrong_elsewhere_than_at_the_input_is_noticed(x, letter, wrong):
    assert PLAIN.verify(plain, x, WEIGHTS, jax.nn.relu).holds
    with pytest.raises(NumbersDiffer):
        PLAIN.verify(plain, x, WEIGHTS | {letter: jnp.array(wrong)}, jax.nn.relu)


def test_a_comparison_that_says_nothing_doesnt_hold():
    block = Block(lambda x: x + x * V + ones(N) * vector("f", M).T, (N, M))
    weights = {"V": WEIGHTS["V"], "f": jnp.full(M, 1e18)}

    def layer(x):
        return x + x @ weights["V"] + duat.offset(weights["f"], "f")

    with pytest.raises(NumbersDiffer):
        block.verify(layer, X, weights | {"V": WEIGHTS["V"][::-1]}, {})
    half = {letter: jnp.array(array).astype(jnp.bfloat16) for letter, array in WEIGHTS.items()}
    with pytest.raises(NumbersDiffer, match="inconclusive"):
        PLAIN.verify(lambda x: plain(x, half), X.astype(jnp.bfloat16), half, jax.nn.relu)


def test_what_stands_still_in_the_block_isnt_held_in_the_function():
    block = Block(lambda x: x + matrix("H", N, N) * x, (N, M))
    pattern = jax.nn.softmax(X @ X.T)
    with pytest.raises(NumbersDiffer, match="H is held in the function and stands still in the block"):
        block.verify(lambda x: x + duat.hold(jax.nn.softmax(x @ x.T), "H") @ x, X, {"H": pattern}, {})


def test_a_tie_of_pre_activations_is_decided_by_what_flows_out():
    block = Block(lambda x: x + activation(x * W) * U + activation(x * W, "tanh") * matrix("E", K, M), (N, M))
    weights = WEIGHTS | {"E": numbers(K, M, key=4)}

    def layer(x):
        second = duat.term(jnp.tanh, x @ weights["W"], "one") @ weights["E"]
        return x + duat.term(jax.nn.silu, x @ weights["W"], "two") @ weights["U"] + second

    assert block.verify(layer, X, weights, {"σ": jax.nn.silu, "tanh": jnp.tanh}).holds


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Block(None), ("None", "function")),
        (lambda: Block(lambda x: x, shape=3), ("3", "rows and columns")),
        (lambda: Block(lambda x: x + A * x, shared="A"), ("shared", "tuple")),
        (lambda: Block(lambda x: x + A * x, shared=("m",)), ("m is shared", "no letter")),
        (lambda: Block(lambda x: held("H", d, d) * x + matrix("H", d, d) * x), ("H is held", "another letter")),
        (lambda: Block(lambda x: matrix("ΔW", d, d) * x), ("'ΔW'", "no letter")),
        (lambda: Block(lambda x: matrix("a#b", d, d) * x), ("'a#b'",)),
        (lambda: Block(lambda x: matrix("V", d, d, i) * x), ("i counts the layers",)),
        (lambda: activation(3), ("3", "matrix expression")),
        (lambda: activation(A, "relu_6"), ("'relu_6'",)),
        (lambda: held("H", "N", "N"), ("'N' × 'N'", "positive integers or symbols")),
        (lambda: summed(lambda h: h, 1, 2), ("a sum takes",)),
        (lambda: summed(lambda h: summed(lambda k: A, 1, h), 1, 2), ("index h",)),
        (lambda: GATED.verify([], X, [], jax.nn.silu), ("0 functions",)),
        (lambda: GATED.verify([gated, gated], X, [WEIGHTS], jax.nn.silu), ("2 functions and 1",)),
        (lambda: GATED.verify(gated, X, [None], jax.nn.silu), ("no mapping",)),
        (lambda: GATED.verify([3], X, WEIGHTS, jax.nn.silu), ("can't be called",)),
        (lambda: GATED.verify(gated, X, WEIGHTS, None), ("no function for σ",)),
        (lambda: GATED.verify(lambda x: gated(x)[:2], X, WEIGHTS, jax.nn.silu), ("(3, 4)", "(2, 4)")),
        (lambda: GATED.verify(lambda x: (gated(x), x), X, WEIGHTS, jax.nn.silu), ("no single array",)),
    ],
)
def test_a_mistake_is_named_with_the_remedy(make, words):
    with pytest.raises(SymbolicError) as caught:
        make()
    assert all(word in str(caught.value) for word in words), caught.value


def block_forms(stack, x):
    """Return the closed form, and the shipped formula with the arrays of its own symbols."""
    form = duat.unroll(stack, x)
    held_values = held_by_layer(form.dynamics, len(stack.blocks))
    block = symbolic_block(stack.blocks[0])
    return form, block, block_arrays(stack, held_values, x.reshape(-1))


@pytest.mark.parametrize("mlp", ["plain", "gated"])
@pytest.mark.parametrize("name", [name for name in BLOCKS if name != "convolution"])
def test_a_shipped_formula_is_its_module_part_by_part(name, mlp):
    stack = make_stack(partial(MODULES[name], mlp=mlp), 2, activation="tanh")
    x = make_input(3)
    form, block, arrays = block_forms(stack, x)
    assert block.name.endswith("gated MLP") == (mlp == "gated")
    s = block.stack
    wanted = {"whole": s.x(1), "path": s.W(1, 1), "offset": s.b(1, 3), "inner": s.W(1, 2)}
    wanted |= {"bias": s.b(1, 2), "outer": s.W(1, 3)}
    found = to_jax(wanted, jnp.tanh, (*block.parameters, block.layer))(arrays)
    read = form.residual_term(1)
    expected = {
        "whole": stack.blocks[0](x),
        "path": read.path.dense(),
        "offset": read.path_bias,
        "inner": read.inner.dense(),
        "bias": read.inner_bias,
        "outer": read.outer.dense(),
    }
    for part, value in expected.items():
        near(found[part].ravel(), np.ravel(value), within=1e-13, message=part)


WRONG_LAYERS = {
    "without the residual": ("post-norm", lambda x, p: p._D2 * (p._D1 * (p._A * x + p._a) + p._d1 + p._mlp(x)) + p._d2),
    "a norm in another place": ("pre-norm", lambda x, p: p._post_norm(x, p._mlp)),
    "one norm for both": ("parallel", lambda x, p: x + p._A * (p._D1 * x + p._d1) + p._a + p._mlp(p._D1 * x + p._d1)),
}


@pytest.mark.parametrize("name", WRONG_LAYERS)
def test_a_wrong_formula_of_a_shipped_block_is_noticed(name, monkeypatch):
    kind, layer = WRONG_LAYERS[name]
    monkeypatch.setitem(transformer._LAYERS, kind, lambda x, mlp: layer(x, transformer))
    assert transformer_block(kind).prove().verified  # as a formula it is one of a stack, of another one
    (result,) = networks(depth=2, block=kind)
    assert not result.holds


def test_the_shipped_convolution_is_a_convolution():
    kernels = numbers(3, 4, 4), numbers(3, 4, 4, key=1)
    bias = numbers(4, key=2)

    def toeplitz(kernel):
        return sum(jnp.kron(jnp.eye(5, k=k - 1), kernel[k].T) for k in range(3))

    def convolved(x, kernel):
        return jax.lax.conv_general_dilated(x.T[None], jnp.array(kernel).transpose(2, 1, 0), (1,), "SAME")[0].T

    def layer(x):
        z = convolved(x, kernels[0]) + duat.offset(jnp.array(bias), "bias")
        return x + convolved(duat.term(jax.nn.relu, z, "convolution"), kernels[1])

    zeros, x = jnp.zeros(20), jnp.array(numbers(5, 4, key=3))
    weights = {"R'": jnp.eye(20), "F'[1]": toeplitz(kernels[0]), "F'[2]": toeplitz(kernels[1])}
    weights |= {"f'[1]": jnp.tile(bias, 5), "f'[2]": zeros}
    assert transformer_block("convolution").verify([layer, layer], x, weights, jax.nn.relu).holds
