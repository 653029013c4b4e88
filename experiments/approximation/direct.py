"""Networks whose outer weights are computed from data by least squares, in place of training."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.nn.mlp import ACTIVATIONS
from experiments.generalization.networks import Network, Sizes, drawn
from experiments.generalization.tasks import Examples, Task


def with_random_biases(network: Network, key: Array, scale: Array) -> Network:
    """Return a network whose inner weights are larger by a factor, with biases as large, and places of variance 1."""
    network = jax.tree.map(lambda leaf: leaf, network)  # a copy, whose weights are changed
    if network.places is not None:
        network.places[...] /= network.places[...].std()
    mlps = _mlps(network.stack)
    for part, part_key in zip(mlps, jax.random.split(key, len(mlps)), strict=True):
        _set(part.input.kernel, part.input.kernel[...] * scale)
        _set(part.input.bias, scale * jax.random.normal(part_key, part.input.bias.shape))
    return network


def _set(parameter: Any, values: Array) -> None:
    parameter[...] = values.astype(parameter.dtype)


def _mlps(stack: Any) -> list[Any]:
    return [block.mlp for block in stack.blocks] if hasattr(stack, "blocks") else [stack]


def _solved(features: Float[Array, "examples features"], targets: Float[Array, "examples outputs"]) -> Array:
    return jnp.linalg.lstsq(features, targets)[0]


def _neurons(block: Any, x: Array, mask: Array) -> tuple[Array, Array]:
    """Return the stream before a block's MLP, and the activations of its neurons."""
    x = x + block.attention(x if block.norm_1 is None else block.norm_1(x), mask)
    return x, ACTIVATIONS["gelu"](block.mlp.input(x if block.norm_2 is None else block.norm_2(x)))


@jax.jit
def fitted(network: Network, examples: Examples) -> Network:
    """Return a network whose outer weights and read-out are fitted, from the first layer on."""
    # Each layer's neurons at the last token are fitted by least squares to what the layers before have left of the
    # target, and write it along one direction of the stream, at every token: `W_3 = c uᵀ`. The read-out is fitted to
    # the last stream. Of a single layer the outer weights and the linear path are fitted.
    network = jax.tree.map(lambda leaf: leaf, network)  # a copy, whose weights are changed
    stack: Any = network.stack
    targets = examples.targets
    x = jax.vmap(network.embed)(examples.inputs)
    if not hasattr(stack, "blocks"):
        return _fitted_layer(network, x[:, 0], targets)
    rest = targets
    direction = jnp.zeros(x.shape[-1]).at[0].set(1.0)
    for block in stack.blocks:
        x, neurons = jax.vmap(partial(_neurons, block))(x, examples.mask)
        coefficients = _solved(neurons[:, -1], rest)[:, 0]
        _set(block.mlp.output.kernel, coefficients[:, None] * direction)
        _set(block.mlp.output.bias, jnp.zeros_like(direction))
        x = x + block.mlp.output(neurons)
        rest = rest - (neurons[:, -1] @ coefficients)[:, None]
    solved = _solved(jnp.pad(x[:, -1], ((0, 0), (0, 1)), constant_values=1.0), targets)
    readout: Any = network.readout
    _set(readout.kernel, solved[:-1])
    _set(readout.bias, solved[-1])
    return network


def _fitted_layer(network: Network, x: Float[Array, "examples inputs"], targets: Array) -> Network:
    layer: Any = network.stack
    neurons = ACTIVATIONS["gelu"](jax.vmap(layer.input)(x))
    ones = jnp.ones((len(x), 1))
    solved = _solved(jnp.concatenate([neurons, x, ones], axis=1), targets)
    count = neurons.shape[1]
    for parameter, values in (
        (layer.output.kernel, solved[:count]),
        (layer.skip.kernel, solved[count:-1]),
        (layer.output.bias, solved[-1]),
    ):
        _set(parameter, values)
    return network


def computed(sizes: Sizes, task: Task, key: Array, scale: Array, number: int) -> Network:
    """Return a network with random inner weights and outer ones that are fitted to examples."""
    weights_key, biases_key, examples_key = jax.random.split(key, 3)
    network = with_random_biases(drawn(sizes, task, weights_key), biases_key, scale)
    return fitted(network, task.draw(examples_key, number))


@jax.jit
def features(network: Network, examples: Examples) -> Float[Array, "examples features"]:
    """Return all that a Transformer has at the last token: each layer's neurons, the streams around them, and a one."""
    stack: Any = network.stack
    x = jax.vmap(network.embed)(examples.inputs)
    found = [x[:, -1], jnp.ones((len(x), 1))]
    for block in stack.blocks:
        x, neurons = jax.vmap(partial(_neurons, block))(x, examples.mask)
        x = x + block.mlp.output(neurons)
        found += [neurons[:, -1], x[:, -1]]
    return jnp.concatenate(found, 1)


def read_out(network: Network, examples: Examples, tested: Examples) -> Float[Array, "examples outputs"]:
    """Return the outputs by least squares on all that a Transformer has at the last token."""
    return features(network, tested) @ _solved(features(network, examples), examples.targets)
