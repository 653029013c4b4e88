"""What is read off a linear map without its matrix is what its matrix says, and what is estimated says how well."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BLOCK_NAMES, close, make_input, make_stack, near, relative
from test_operators import INPUTS, OUTPUTS, composition_of_two, function, kronecker, matrix, mix, transposed_function

import duat_jax as duat
from duat_jax.operators import entries
from duat_jax.operators.function import LinearFunction
from duat_jax.operators.kronecker import Kronecker
from duat_jax.operators.linear_map import LinearMap, pytree

KEY = jax.random.key(0)


def blocks_of(dense, outputs, inputs):
    """Return a matrix by place and feature, `[output place, output feature, input place, input feature]`."""
    return np.asarray(dense).reshape(*outputs, *inputs)


def norms_of(dense, outputs=OUTPUTS, inputs=INPUTS):
    return np.sqrt((blocks_of(dense, outputs, inputs) ** 2).sum((1, 3)))


def agrees_with_svd(found, dense, count):
    u, values, vt = np.linalg.svd(dense)
    close(found.values, values[:count], layers=8)
    left, right = np.asarray(found.left).reshape(count, -1), np.asarray(found.right).reshape(count, -1)
    # Up to a sign, the same for both.
    signs = np.sign((right * vt[:count]).sum(1))[:, None]
    close(signs * right, vt[:count])
    close(signs * left, u.T[:count])
    assert (found.errors < 1e-12 * values[0]).all()


@pytest.mark.parametrize(
    ("make", "sizes"),
    [(kronecker, (OUTPUTS, INPUTS)), (composition_of_two, (OUTPUTS, INPUTS)), (function, (INPUTS, OUTPUTS))],
)
def test_norms_are_those_of_the_matrix(make, sizes):
    made, dense = make(0, *sizes)
    close(duat.operators.token_norms(made), norms_of(dense, *sizes))
    close(duat.operators.frobenius(made), np.linalg.norm(dense))


@pytest.mark.parametrize("make", [kronecker, transposed_function])
def test_the_diagonal_is_that_of_the_matrix(make):
    made, dense = make(0, INPUTS, INPUTS)
    close(duat.operators.diagonal(made), np.diag(dense))
    assert duat.operators.diagonal(made).shape == INPUTS


@pytest.mark.parametrize(
    ("inputs", "outputs"), [((0, 2), (3, 2)), ((3, 2), (0, 2)), ((3, 0), (3, 2)), ((0, 2), (0, 2))]
)
def test_a_map_from_or_to_nothing_has_norms_of_zero(inputs, outputs):
    made, _ = function(0, outputs, inputs)
    norms = duat.operators.token_norms(made)
    assert norms.shape == (outputs[0], inputs[0]) and not norms.any()
    assert float(duat.operators.frobenius(made)) == 0
    if inputs == outputs:
        assert duat.operators.diagonal(made).shape == inputs


@pytest.mark.parametrize("at_once", [1, 3, 7, 20])
def test_in_batches_every_entry_is_met_once(at_once, monkeypatch):
    monkeypatch.setattr(entries, "NUMBERS", at_once * 20)
    kernels = matrix(0, 4, 4, 5, 5)
    dense = np.transpose(kernels, (0, 2, 1, 3)).reshape(20, 20)
    # A function of its own, so that nothing compiled for another size of batch is met.
    made = LinearFunction(lambda kernels, x: mix(kernels, x), kernels, jax.ShapeDtypeStruct(INPUTS, kernels.dtype))
    assert entries.at_once(made) == at_once
    close(duat.operators.diagonal(made), np.diag(dense))
    close(duat.operators.token_norms(made), norms_of(dense, INPUTS, INPUTS))


@pytest.mark.slow
def test_memory_doesnt_grow_with_the_matrix(optimised):
    factors = jnp.ones((128, 256), jnp.float32)
    made = LinearFunction(jnp.multiply, factors, jax.ShapeDtypeStruct(factors.shape, factors.dtype))
    for program in (entries._squares, entries._diagonal):
        numbers = program.lower(made).compile().memory_analysis().temp_size_in_bytes / 4
        assert numbers < 4 * entries.NUMBERS < factors.size**2 / 60


@pytest.mark.parametrize("block", [pytest.param(name, marks=pytest.mark.slow) for name in BLOCK_NAMES])
def test_of_a_collapse_norms_diagonal_and_triplets_are_those_of_its_matrix(block):
    x = make_input(3)
    linear = jax.jit(lambda x: duat.collapse(make_stack(block, 1), x).linear)(x)
    dense, norms = np.asarray(linear.dense()), duat.operators.token_norms(linear)
    close(norms, norms_of(dense, x.shape, x.shape))
    close(duat.operators.diagonal(linear), np.diag(dense))
    agrees_with_svd(duat.operators.singular_triplets(linear, 4, key=KEY, iterations=18), dense, 4)
    assert (np.triu(norms, 1) == 0).all() and (np.tril(norms) > 0).sum() == 6, "a later token moves no earlier one"


def test_of_one_tokens_state_and_of_one_number_there_is_one_norm_for_each_input_token():
    made, matrix = function(0, (3, 6), (3, 6))
    dense = matrix.reshape(3, 6, 3, 6)
    last = LinearFunction(lambda data, x: mix(data, x)[-1], made.data, made.input)
    one = LinearFunction(lambda data, x: mix(data, x)[-1, 2], made.data, made.input)
    close(duat.operators.token_norms(last), np.sqrt((dense[-1] ** 2).sum((0, 2))))
    close(duat.operators.token_norms(one), np.sqrt((dense[-1, 2] ** 2).sum(-1)))
    close(duat.operators.frobenius(one), np.linalg.norm(dense[-1, 2]))
    assert duat.operators.token_norms(one).shape == duat.operators.token_norms(last).shape == (3,)


def test_squares_of_half_precision_are_summed_in_single():
    made = Kronecker(jnp.ones((1, 1), jnp.bfloat16), jnp.ones((1, 300), jnp.bfloat16))
    assert duat.operators.token_norms(made).dtype == jnp.float32
    relative(duat.operators.frobenius(made), 300**0.5, within=1e-6)
    relative(duat.operators.frobenius(made.T), 300**0.5, within=1e-6)


def test_estimates_are_as_far_off_as_they_say():
    made, dense = function(0, INPUTS, INPUTS)
    diagonal = duat.operators.estimated_diagonal(made, 400, key=KEY)
    assert diagonal.value.shape == diagonal.standard_error.shape == INPUTS
    in_errors = (diagonal.value.reshape(-1) - np.diag(dense)) / diagonal.standard_error.reshape(-1)
    assert 0.5 < np.mean(in_errors**2) < 2
    # For random signs the variance is the sum of the row's other squares.
    spread = np.sqrt(((dense**2).sum(1) - np.diag(dense) ** 2) / 400)
    relative(diagonal.standard_error.reshape(-1), spread, within=0.15)
    norms = jax.vmap(lambda key: duat.operators.estimated_frobenius(made, 100, key=key))(jax.random.split(KEY, 60))
    in_errors = (norms.value - np.linalg.norm(dense)) / norms.standard_error
    assert 0.5 < np.mean(in_errors**2) < 2
    relative(norms.value.mean(), np.linalg.norm(dense), within=0.02)


@pytest.mark.parametrize("make", [composition_of_two, transposed_function])
@pytest.mark.parametrize("sizes", [(OUTPUTS, INPUTS), (INPUTS, OUTPUTS)], ids=["wide", "tall"])
def test_triplets_of_a_whole_iteration_are_those_of_the_matrix(make, sizes):
    made, dense = make(0, *sizes)
    found = duat.operators.singular_triplets(made, 6, key=KEY)
    assert found.left.shape == (6, *made.output.shape) and found.right.shape == (6, *made.input.shape)
    agrees_with_svd(found, dense, 6)


@pytest.mark.parametrize(
    ("outputs", "inputs", "iterations"), [((4, 6), INPUTS, 4), (INPUTS, (4, 6), 4), ((4, 6), INPUTS, 20)]
)
def test_a_singular_value_lies_within_the_error(outputs, inputs, iterations):
    made, dense = function(3, outputs, inputs)
    found = duat.operators.singular_triplets(made, 4, key=KEY, iterations=iterations)
    values = np.linalg.svd(dense, compute_uv=False)
    nearest = np.abs(np.asarray(found.values)[:, None] - values).min(1)
    assert (nearest <= found.errors).all()
    assert (found.errors[-1] > 1e-3) == (iterations < 20), "after few iterations the last isn't found yet"
    u, v = np.asarray(found.left).reshape(4, -1), np.asarray(found.right).reshape(4, -1)
    forwards, backwards = v @ dense.T - found.values[:, None] * u, u @ dense - found.values[:, None] * v
    expected = np.sqrt(((forwards**2).sum(1) + (backwards**2).sum(1)) / 2)
    near(found.errors, expected, within=1e-12)


CALLS = []


@pytree("factors")
@dataclass(frozen=True, eq=False)
class Counted(LinearMap):
    """A diagonal map that counts its applications, and whose transpose may be told to lie."""

    factors: jax.Array
    name: str = "map"
    lie: float = 1.0

    @property
    def input(self):
        """What it takes."""
        return jax.ShapeDtypeStruct(self.factors.shape, self.factors.dtype)

    output = input

    @property
    def T(self):
        """The transpose, or so it says."""
        return Counted(self.factors * self.lie, "transpose", self.lie)

    def _apply(self, x):
        jax.debug.callback(lambda _: CALLS.append(self.name), x[0])
        return self.factors * x


def test_an_iteration_applies_the_map_and_its_transpose_once_and_so_does_each_error():
    CALLS.clear()
    jax.block_until_ready(duat.operators.singular_triplets(Counted(jnp.arange(1.0, 21)), 3, key=KEY, iterations=10))
    jax.effects_barrier()
    assert (CALLS.count("map"), CALLS.count("transpose")) == (13, 13)


def test_a_wrong_transpose_is_seen_in_the_errors():
    true, lying = (Counted(jnp.arange(1.0, 21), lie=lie) for lie in (1.0, 1.01))
    assert (duat.operators.singular_triplets(true, 2, key=KEY, iterations=20).errors < 1e-13).all()
    assert (duat.operators.singular_triplets(lying, 2, key=KEY, iterations=20).errors > 1e-2).all()


@pytest.mark.parametrize(
    ("made", "values"),
    [
        (Kronecker(jnp.eye(3), jnp.eye(2)), [1.0]),
        (Kronecker(jnp.eye(3), jnp.diag(jnp.array([2.0, 3.0]))), [3.0]),
        (Kronecker(jnp.zeros((3, 3)), jnp.eye(2)), []),
        (Kronecker(jnp.full((3, 3), jnp.nan), jnp.eye(2)), []),
    ],
    ids=["identity", "two values", "zero", "not a number"],
)
def test_where_there_are_no_further_triplets_no_error_says_that_there_are(made, values):
    found = duat.operators.singular_triplets(made, 4, key=KEY, iterations=6)
    certain = found.errors < 1e-10
    assert np.isfinite(found.values).all() and certain[: len(values)].all()
    close(found.values[: len(values)], values)
    # What is found by rounding, a value's second copy or the other value, is a triplet all the same.
    exact = np.linalg.svd(np.nan_to_num(made.dense()), compute_uv=False)
    assert (np.abs(np.asarray(found.values[certain])[:, None] - exact).min(1) < 1e-10).all()
    for vectors in (found.left, found.right):
        close(np.linalg.norm(vectors.reshape(4, -1), axis=1)[certain], 1)


def test_the_iteration_runs_in_the_default_precision(dtype=jnp.float32):
    left, right = matrix(0, 3, 3).astype(dtype), matrix(1, 4, 4).astype(dtype)
    found = duat.operators.singular_triplets(Kronecker(left, right), 2, key=KEY, iterations=12)
    exact = np.linalg.svd(np.kron(left.astype(float), right.astype(float)), compute_uv=False)[:2]
    assert {part.dtype for part in found} == {jnp.dtype(float)}
    relative(found.values, exact, within=4 * float(jnp.finfo(dtype).eps))


def test_maps_with_one_function_are_one_program_and_triplets_go_through_jit():
    traces = []

    def multiply(factors, x):
        traces.append(None)
        return factors * x

    like = jax.ShapeDtypeStruct((5, 2), jnp.float64)
    maps = [LinearFunction(multiply, matrix(key, 5, 2), like) for key in range(3)]
    found = [
        (
            duat.operators.singular_triplets(made, 2, key=KEY),
            duat.operators.token_norms(made),
            duat.operators.diagonal(made),
        )
        for made in maps
    ]
    first = len(traces)
    again = [
        (
            duat.operators.singular_triplets(made, 2, key=KEY),
            duat.operators.token_norms(made),
            duat.operators.diagonal(made),
        )
        for made in maps
    ]
    assert len(traces) == first
    assert first < 3 * 10
    jax.tree.map(close, again, found)
    close(jax.jit(lambda made: duat.operators.singular_triplets(made, 2, key=KEY))(maps[0]).values, found[0][0].values)


def test_what_cant_be_asked_is_an_error_that_says_why():
    made, _ = function(0, OUTPUTS, INPUTS)
    like = jax.ShapeDtypeStruct((2,), jnp.complex128)
    turned = LinearFunction(jnp.multiply, jnp.ones(2, jnp.complex128), like)
    cases = [
        (lambda: duat.operators.diagonal(made), ("float64[4,5]", "float64[2,3]", "no diagonal")),
        (lambda: duat.operators.estimated_diagonal(made, 4, key=KEY), ("float64[4,5]", "float64[2,3]", "no diagonal")),
        (lambda: duat.operators.estimated_frobenius(made, 1, key=KEY), ("samples = 1", "at least 2")),
        (lambda: duat.operators.singular_triplets(made, 0, key=KEY), ("count = 0", "1 and 6")),
        (lambda: duat.operators.singular_triplets(made, 7, key=KEY), ("count = 7", "1 and 6")),
        (
            lambda: duat.operators.singular_triplets(made, 3, key=KEY, iterations=2),
            ("iterations = 2", "count = 3", "6"),
        ),
        (lambda: duat.operators.singular_triplets(made, 3, key=KEY, iterations=7), ("iterations = 7", "6")),
        (lambda: duat.operators.singular_triplets(turned, 9, key=KEY), ("complex128[2] isn't real", "count = 9")),
    ]
    for call, words in cases:
        with pytest.raises(duat.DuatError) as caught:
            call()
        assert all(word in str(caught.value) for word in words), caught.value
