"""A linear map without its matrix does what its matrix does."""

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest
from helpers import BLOCK_NAMES, close, make_input, make_stack, weights_of

import duat_jax as duat


@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_apply_transpose_and_dense_agree(block):
    x = make_input(3)
    linear = duat.unroll(make_stack(block, 2), x).input_map()
    dense = linear.dense()
    v, u = weights_of(x.shape, 3), weights_of(x.shape, 4)
    close(linear(v), dense @ v.reshape(-1))
    close(linear.T(u), dense.T @ u.reshape(-1))
    close(linear.T.T(v), linear(v))
    close(jnp.vdot(u, linear(v)), jnp.vdot(linear.T(u), v))
    assert linear.output.shape == linear.T.input.shape == (3, 6)


def test_a_linear_map_is_a_lineax_operator():
    x = make_input(2)
    linear = duat.unroll(make_stack("pre-norm", 2), x).input_map()
    operator = linear.as_lineax()
    close(operator.mv(x), linear(x))
    close(operator.as_matrix(), linear.dense())
    solution = lineax.linear_solve(operator, linear(x), lineax.AutoLinearSolver(well_posed=None), throw=True)
    np.testing.assert_allclose(solution.value, x, atol=1e-9)


def test_maps_go_through_jit():
    x = make_input(2)
    stack = make_stack("parallel", 2)
    eager = duat.unroll(stack, x).outer_map(0).dense()
    close(jax.jit(lambda stack, x: duat.unroll(stack, x).outer_map(0).dense())(stack, x), eager)
