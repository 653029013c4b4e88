"""The collapse is one affine map that equals the output, and is the derivative where the activation is linear."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BLOCK_NAMES, close, make_input, make_stack
from test_record_replay import scan_of

import duat_jax as duat
from duat_jax.forms.affine_form import KINDS, collapsed_contributions
from duat_jax.nn import ACTIVATIONS
from duat_jax.transform.recording import record_kinds


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_the_collapse_equals_the_output(block, activation):
    stack, x = make_stack(block, 3, activation=activation), make_input()
    linear, bias = jax.jit(lambda x: [f := duat.collapse(stack, x), (f.linear(x), f.bias)][1])(x)
    close(linear + bias, stack(x), layers=6)


def test_the_dense_collapse_acts_as_the_map_does():
    stack, x = make_stack("pre-norm", 2), make_input(3)
    linear, bias, _ = duat.collapse(stack, x)
    close(linear.dense() @ x.reshape(-1) + bias.reshape(-1), stack(x))
    close(linear.T.dense(), linear.dense().T)


def test_of_a_relu_network_the_collapse_is_the_jacobian():
    """Piecewise linear: exact in a neighbourhood, so the held slope is the derivative."""
    kernels = jax.random.normal(jax.random.key(0), (3, 6, 6)) / 2

    def network(x):
        for kernel in kernels:
            x = x + duat.term(jax.nn.relu, x @ kernel + duat.offset(kernel[0], "bias"), "mlp")
        return x

    x = make_input(1)[0]
    linear, bias, _ = duat.collapse(network, x)
    close(linear.dense(), jax.jacobian(network)(x))
    nearby = x + 1e-4
    close(linear(nearby) + bias, network(nearby))


@pytest.mark.parametrize("activation", ["sigmoid", "gelu", "tanh", "relu"])
def test_at_zero_the_slope_is_the_derivative_and_sigma_of_zero_is_a_bias(activation):
    sigma = ACTIVATIONS[activation]
    linear, bias, _ = duat.collapse(lambda x: duat.term(sigma, x, "term"), jnp.zeros(3))
    close(linear.dense(), np.diag(np.full(3, jax.grad(sigma)(0.0))))
    close(bias, np.full(3, sigma(0.0)))


@pytest.mark.parametrize(("activation", "scanned"), [("sigmoid", True), ("gelu", False)])
@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_contributions_of_the_collapse_are_its_matrix_times_the_input(block, activation, scanned):
    stack, x = make_stack(block, 2, activation=activation), make_input(3)
    fn = scan_of(stack) if scanned else stack

    def readout(x):
        return fn(x)[-1, 2]

    contributions = collapsed_contributions(record_kinds(readout, x, KINDS))
    assert contributions.completeness.holds
    linear, bias, _ = duat.collapse(stack, x)
    row = linear.dense().reshape(3, 6, 3, 6)[-1, 2]
    close(contributions.input, row * x)
    close(contributions.bias, bias[-1, 2])
    close(contributions.input.sum() + contributions.bias, readout(x))


def test_an_unmarked_constant_is_in_the_bias_of_the_collapse():
    x = make_input()
    contributions = collapsed_contributions(record_kinds(lambda x: (x + 3.0).sum(), x, KINDS))
    close(contributions.bias, 3.0 * x.size)
    assert contributions.completeness.holds
