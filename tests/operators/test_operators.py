"""Linear maps without their matrices do what their matrices do."""

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest
from functions import scan_of
from helpers import BLOCK_NAMES, close, make_input, make_stack, weights_of
from hypothesis import given, settings
from hypothesis import strategies as st

import duat_jax as duat
from duat_jax.operators.function import LinearFunction
from duat_jax.operators.kronecker import Kronecker
from duat_jax.operators.linear_map import Composition, Sum
from duat_jax.reference.dense import attention, linear_on_features, linear_on_rows, vec


def mix(kernels, x):
    """A linear function of rows and features that isn't a Kronecker product."""
    return jnp.einsum("oiuv,iv->ou", kernels, x)


def matrix(key, *shape):
    return jnp.asarray(np.random.default_rng(key).normal(size=shape))


def kronecker(key, outputs, inputs):
    left, right = matrix(key, outputs[0], inputs[0]), matrix(key + 1, outputs[1], inputs[1])
    return Kronecker(left, right), np.kron(left, right)


def function(key, outputs, inputs):
    kernels = matrix(key, outputs[0], inputs[0], outputs[1], inputs[1])
    dense = np.transpose(kernels, (0, 2, 1, 3)).reshape(np.prod(outputs), np.prod(inputs))
    return LinearFunction(mix, kernels, jax.ShapeDtypeStruct(inputs, kernels.dtype)), dense


def transposed_function(key, outputs, inputs):
    made, dense = function(key, inputs, outputs)
    return made.T, dense.T


def sum_of_two(key, outputs, inputs):
    (a, dense_a), (b, dense_b) = kronecker(key, outputs, inputs), function(key + 2, outputs, inputs)
    return a + b, dense_a + dense_b


def composition_of_two(key, outputs, inputs):
    between = (inputs[0] + 1, outputs[1] + 2)
    (a, dense_a), (b, dense_b) = function(key, outputs, between), kronecker(key + 2, between, inputs)
    return a @ b, dense_a @ dense_b


MAKERS = (kronecker, function, transposed_function, sum_of_two, composition_of_two)
KINDS = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
OUTPUTS, INPUTS = (2, 3), (4, 5)


@KINDS
def test_a_map_is_its_matrix_on_vec(make):
    made, dense = make(0, OUTPUTS, INPUTS)
    x, u = matrix(7, *INPUTS), matrix(8, *OUTPUTS)
    assert isinstance(made, duat.operators.LinearMap)
    assert (made.input.shape, made.output.shape) == (INPUTS, OUTPUTS)
    assert (made.T.input.shape, made.T.output.shape) == (OUTPUTS, INPUTS)
    close(made(x), dense @ x.reshape(-1))
    close(made.T(u), dense.T @ u.reshape(-1))
    close(made.T.T(x), made(x))
    close(made.dense(), dense)
    close(made.T.dense(), dense.T)
    assert made(x).dtype == made.output.dtype == made.T.input.dtype


@KINDS
def test_sums_and_compositions_are_those_of_the_matrices(make):
    made, dense = make(0, OUTPUTS, INPUTS)
    other, dense_other = make(20, OUTPUTS, INPUTS)
    before, dense_before = function(30, INPUTS, (3, 2))
    close((made + other).dense(), dense + dense_other)
    close((made @ before).dense(), dense @ dense_before)
    close((before.T @ other.T).dense(), dense_before.T @ dense_other.T)
    close(((made + other) @ before).T.dense(), ((dense + dense_other) @ dense_before).T)
    assert isinstance(made + other, Sum)
    assert isinstance(made @ before, Composition)


@KINDS
def test_maps_are_arguments_and_results_of_jit(make):
    made, dense = make(0, OUTPUTS, INPUTS)
    x, u = matrix(7, *INPUTS), matrix(8, *OUTPUTS)
    close(jax.jit(lambda made, x: made(x))(made, x), dense @ x.reshape(-1))
    returned = jax.jit(lambda made: (made.T, made + made))(made)
    close(returned[0](u), dense.T @ u.reshape(-1))
    close(returned[1].dense(), 2 * dense)
    close(jax.jit(type(made).dense)(made), dense)


@KINDS
def test_maps_are_arguments_of_vmap_and_batches_of_maps_its_results(make):
    made, dense = make(0, OUTPUTS, INPUTS)
    xs = matrix(7, 3, *INPUTS)
    close(jax.vmap(made)(xs), np.einsum("oi,bi->bo", dense, xs.reshape(3, -1)))
    factors = jnp.array([1.0, -2.0, 0.5])
    batch = jax.vmap(lambda factor: jax.tree.map(lambda leaf: leaf * factor, made))(factors)
    singles = [jax.tree.map(lambda leaf, factor=factor: leaf * factor, made) for factor in factors]
    close(jax.vmap(lambda made, x: made(x))(batch, xs), jnp.stack([one(x) for one, x in zip(singles, xs)]))
    close(jax.vmap(lambda made: made.T.dense())(batch), jnp.stack([one.T.dense() for one in singles]))
    close(jax.vmap(lambda made: made.dense(), in_axes=(None,), axis_size=2)(made)[1], dense)


@KINDS
def test_a_map_is_a_lineax_operator(make):
    made, dense = make(0, INPUTS, INPUTS)
    operator, x = made.as_lineax(), matrix(7, *INPUTS)
    close(operator.mv(x), dense @ x.reshape(-1))
    close(operator.as_matrix(), dense)
    close(operator.T.as_matrix(), dense.T)
    solution = lineax.linear_solve(operator, made(x), lineax.AutoLinearSolver(well_posed=None), throw=True)
    close(solution.value, x)


@KINDS
def test_pytrees_of_maps_keep_their_leaves_and_go_through_placeholders(make):
    made, dense = make(0, OUTPUTS, INPUTS)
    leaves, tree = jax.tree.flatten(made)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    close(jax.tree.unflatten(tree, leaves).dense(), dense)
    assert jax.tree.leaves(jax.tree.map(lambda _: "leaf", made)) == ["leaf"] * len(leaves)
    assert len({jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(made)}) == len(leaves)


def test_a_function_transposed_twice_is_the_map_itself():
    made, _ = function(0, OUTPUTS, INPUTS)
    twice = made.T.T
    assert jax.tree.structure(twice) == jax.tree.structure(made)
    assert twice.data is made.data
    assert jax.tree.structure(made.T) != jax.tree.structure(made)


def test_maps_are_made_under_jit():
    w, x = matrix(0, 3, 4), jax.ShapeDtypeStruct((4,), jnp.float64)
    close(jax.jit(lambda w: Kronecker(w, w.T))(w).dense(), np.kron(w, w.T))
    close(jax.jit(lambda w: LinearFunction(jnp.matmul, w, x).T)(w).dense(), w.T)


def test_maps_with_one_function_are_one_compiled_program():
    traces = []

    @jax.jit
    def apply(made, x):
        traces.append(None)
        return made(x)

    x = matrix(7, *INPUTS)
    for key in range(3):
        made, dense = function(key, OUTPUTS, INPUTS)
        close(apply(made, x), dense @ x.reshape(-1))
    assert len(traces) == 1


shapes = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(max_examples=12, deadline=None)
@given(shapes, shapes, shapes, st.sampled_from(MAKERS), st.sampled_from(MAKERS), st.integers(0, 1000))
@pytest.mark.slow
def test_the_algebra_of_maps_is_that_of_matrices(outputs, between, inputs, make, make_other, key):
    (a, dense_a), (b, dense_b) = make(key, outputs, between), make_other(key + 9, between, inputs)
    (c, dense_c), x = make_other(key + 18, outputs, inputs), matrix(key, *inputs)
    whole, dense = a @ b + c, dense_a @ dense_b + dense_c
    close(whole(x), dense @ x.reshape(-1), layers=8)
    close(whole.T.dense(), dense.T, layers=8)


def test_layers_and_heads_are_kronecker_products():
    tokens, w, rows = 3, matrix(0, 4, 5), matrix(1, 2, 3)
    x = matrix(2, tokens, 4)
    on_features, on_rows = Kronecker(jnp.eye(tokens), w.T), Kronecker(rows, jnp.eye(4))
    close(on_features(x), x @ w)
    close(on_features.dense(), linear_on_features(w, tokens))
    close(on_rows(x), rows @ x)
    close(on_rows.dense(), linear_on_rows(rows, 4))
    patterns, values, outputs = matrix(3, 2, tokens, tokens), matrix(4, 2, 4, 3), matrix(5, 2, 3, 4)
    heads = [Kronecker(h, (v @ o).T) for h, v, o in zip(patterns, values, outputs)]
    close((heads[0] + heads[1]).dense(), attention(patterns, values, outputs))
    close((heads[0] + heads[1])(x), sum(vec(h @ x @ v @ o) for h, v, o in zip(patterns, values, outputs)))


def test_what_doesnt_fit_is_an_error_with_both_shapes():
    made, _ = kronecker(0, OUTPUTS, INPUTS)
    other, _ = function(0, (3, 3), INPUTS)
    cases = [
        (lambda: made(jnp.ones((4, 6))), ("float64[4,5]", "float64[4,6]")),
        (lambda: made(jnp.ones((4, 5), jnp.float32)), ("float64[4,5]", "float32[4,5]")),
        (lambda: other.T(jnp.ones((4, 5))), ("float64[3,3]", "float64[4,5]")),
        (lambda: made + other, ("float64[2,3]", "float64[3,3]")),
        (lambda: made @ other, ("float64[4,5]", "float64[3,3]")),
        (lambda: Kronecker(jnp.ones(2), jnp.ones((2, 2, 1))), ("float64[2]", "float64[2,2,1]")),
        (lambda: Kronecker(jnp.ones((2, 2)), jnp.ones((1, 3), jnp.float32)), ("float64[2,2]", "float32[1,3]")),
    ]
    for call, words in cases:
        with pytest.raises(duat.DuatError) as caught:
            call()
        assert all(word in str(caught.value) for word in words), caught.value


def test_only_maps_are_added_and_composed_and_the_contract_itself_cant_be_made():
    made, _ = kronecker(0, INPUTS, INPUTS)
    for call in (lambda: made + 1, lambda: made @ jnp.ones((4, 5)), lambda: 2 * made, lambda: -made):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError, match="abstract"):
        duat.operators.LinearMap()


@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_maps_of_a_form_agree_with_their_matrices(block):
    x = make_input(3)
    linear = duat.unroll(make_stack(block, 2), x).input_map()
    dense = linear.dense()
    v, u = weights_of(x.shape, 3), weights_of(x.shape, 4)
    close(linear(v), dense @ v.reshape(-1))
    close(linear.T(u), dense.T @ u.reshape(-1))
    close(linear.T.T(v), linear(v))
    close(jnp.vdot(u, linear(v)), jnp.vdot(linear.T(u), v))
    assert linear.output.shape == linear.T.input.shape == (3, 6)


def test_maps_of_a_scanned_stack_transpose():
    x = make_input(3)
    linear = duat.unroll(scan_of(make_stack("post-norm", 3)), x).input_map()
    u = weights_of(x.shape, 4)
    close(linear.T(u), linear.dense().T @ u.reshape(-1))


def test_maps_of_a_form_go_through_jit_as_results():
    x = make_input(2)
    stack = make_stack("parallel", 2)
    eager = duat.unroll(stack, x).outer_map(1)
    compiled = jax.jit(lambda stack, x: duat.unroll(stack, x).outer_map(1))(stack, x)
    close(compiled.dense(), eager.dense())
    close(jax.jit(lambda made: made.T.dense())(compiled), eager.dense().T)
    close(jax.jit(lambda stack, x: duat.unroll(stack, x).outer_map(1).dense())(stack, x), eager.dense())
