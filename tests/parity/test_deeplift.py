"""On networks of modules, where DeepLIFT's rescale rule is defined, the secant is DeepLIFT, as Captum computes it.

Source: Shrikumar, Greenside, Kundaje, "Learning Important Features Through Propagating Activation Differences", 2017.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from captum.attr import DeepLift
from helpers import near

import duat_jax as duat

SIZES = (5, 12, 8, 1)
ACTIVATIONS = {
    "relu": (torch.nn.ReLU, jax.nn.relu),
    "leaky relu": (torch.nn.LeakyReLU, jax.nn.leaky_relu),
    "elu": (torch.nn.ELU, jax.nn.elu),
    "sigmoid": (torch.nn.Sigmoid, jax.nn.sigmoid),
    "tanh": (torch.nn.Tanh, jnp.tanh),
    "softplus": (torch.nn.Softplus, jax.nn.softplus),
}


def random_layers():
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in pairwise(SIZES)]


def inputs(*shape):
    rng = np.random.default_rng(1)
    return rng.normal(size=shape), rng.normal(size=shape)


def linear(weight, bias):
    """Return a module of torch with these parameters."""
    layer = torch.nn.Linear(*weight.shape[::-1], dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))
    return layer


def deeplift(model, x, y):
    """Return what Captum attributes to each entry of the first of two inputs, against the second."""
    pair = (torch.tensor(z[None], requires_grad=True) for z in (x, y))
    attributed, delta = DeepLift(model).attribute(*pair, target=0, return_convergence_delta=True)
    assert abs(delta.item()) < 1e-9
    return attributed[0].detach().numpy()


def agree(fn, model, x, y):
    found = duat.secant(fn)(jnp.array(x), jnp.array(y))
    expected = deeplift(model, x, y)
    assert np.abs(expected).max() > 1e-2
    near(found.parts, expected, within=1e-9 * np.abs(expected).max())
    assert found.completeness.verdict == "holds"


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_secant_of_a_multilayer_perceptron_is_deeplift(name):
    (module, activation), layers = ACTIVATIONS[name], random_layers()

    def network(x):
        for weight, bias in layers[:-1]:
            x = activation(weight @ x + bias)
        return (layers[-1][0] @ x + layers[-1][1])[0]

    modules = [part for layer in layers for part in (linear(*layer), module())]
    agree(network, torch.nn.Sequential(*modules[:-1]), *inputs(SIZES[0]))


def test_the_secant_of_a_convolutional_network_is_deeplift():
    rng = np.random.default_rng(2)
    kernel, readout = rng.normal(size=(4, 2, 3)), rng.normal(size=(1, 4 * 8))
    convolution = torch.nn.Conv1d(2, 4, 3, bias=False, dtype=torch.float64)
    with torch.no_grad():
        convolution.weight.copy_(torch.tensor(kernel))

    def network(x):
        convolved = jax.lax.conv_general_dilated(x[None], jnp.array(kernel), (1,), "VALID")
        return readout[0] @ jax.nn.relu(convolved).reshape(-1)

    model = torch.nn.Sequential(convolution, torch.nn.ReLU(), torch.nn.Flatten(), linear(readout, np.zeros(1)))
    agree(network, model, *inputs(2, 10))
