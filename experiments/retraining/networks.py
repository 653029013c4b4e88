"""Two small networks that predict the next byte, their texts, and their training with a weight for every example."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from duat_jax.evaluation.running_text import token_losses, windows
from duat_jax.training.update import Weights
from experiments.long_context.networks import FULL, Sizes, network
from experiments.long_context.tasks import BYTES, held_out_stream, trained_stream

TOKENS, EXAMPLES, BATCH, STEPS, TARGETS = 24, 64, 16, 192, 8
"""The length of a text; how many texts there are to train on and in a step; steps; held-out texts whose loss is
forecast."""
CONTEXT, WIDTH, HIDDEN = 8, 8, 64
"""The bytes that the perceptron sees, the numbers that stand for each, and its hidden units."""

TRANSFORMER, PERCEPTRON = "Transformer", "perceptron"

SUBSETS = 10
"""The number of trainings that are run together."""

Optimiser = Callable[[Any], optax.GradientTransformation]
"""From a learning rate to the optimiser."""
Losses = Callable[[Weights, Int[Array, "texts tokens"]], Float[Array, "texts"]]
"""From weights and texts to the mean loss of each text."""


class Network(NamedTuple):
    """A network before its training.

    Args:
        weights: the first weights, as one vector.
        losses: the mean loss of each text, as a function of such a vector.
    """

    weights: Float[Array, "weights"]
    losses: Losses


def _perceptron_losses(weights: Weights, texts: Array) -> Array:
    """Predict every byte but the first eight from the eight before it."""
    embedded = weights["embedding"][texts]
    seen = jnp.concatenate([embedded[:, i : i + TOKENS - CONTEXT] for i in range(CONTEXT)], -1)
    hidden = jnp.tanh(seen @ weights["in"] + weights["bias"])
    scores = jax.nn.log_softmax(hidden @ weights["out"])
    return -jnp.take_along_axis(scores, texts[:, CONTEXT:, None], -1).mean((1, 2))


def _first_weights(kind: str, seed: int) -> Weights:
    if kind == TRANSFORMER:
        sizes = Sizes(kind=FULL, layers=2, features=32, neurons=64, tokens=TOKENS, vocab=BYTES, heads=2)
        return network(sizes, nnx.Rngs(seed))
    keys = jax.random.split(jax.random.key(seed), 3)
    shapes = {"embedding": (BYTES, WIDTH), "in": (CONTEXT * WIDTH, HIDDEN), "out": (HIDDEN, BYTES)}
    scales = {"embedding": 1.0, "in": (CONTEXT * WIDTH) ** -0.5, "out": HIDDEN**-0.5}
    drawn = {
        name: scales[name] * jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return drawn | {"bias": jnp.zeros(HIDDEN)}


@cache
def _losses_of(kind: str) -> Losses:
    """Return one function for all networks of a kind, so that its programs are compiled once."""
    _, as_tree = ravel_pytree(_first_weights(kind, 0))
    if kind == PERCEPTRON:
        return lambda weights, texts: _perceptron_losses(as_tree(weights), texts)
    return lambda weights, texts: token_losses(as_tree(weights), texts).mean(-1)


def make_network(kind: str, seed: int) -> Network:
    """Return a network with random first weights."""
    return Network(ravel_pytree(_first_weights(kind, seed))[0], _losses_of(kind))


class Texts(NamedTuple):
    """The texts that a network reads.

    Args:
        examples: the texts to train on.
        order: the numbers of the texts of every step's batch: each text once in every pass.
        targets: the held-out texts whose loss is forecast.
    """

    examples: Int[Array, "examples tokens"]
    order: Int[Array, "steps batch"]
    targets: Int[Array, "targets tokens"]


def draw_texts(seed: int) -> Texts:
    """Return the texts of a run."""
    passes = STEPS * BATCH // EXAMPLES
    order = np.concatenate([np.random.default_rng([seed, k]).permutation(EXAMPLES) for k in range(passes)])
    return Texts(
        jnp.asarray(windows(trained_stream(), EXAMPLES, TOKENS, seed=seed)),
        jnp.asarray(order.reshape(STEPS, BATCH)),
        jnp.asarray(windows(held_out_stream(), TARGETS, TOKENS, seed=seed)),
    )


class Path(NamedTuple):
    """A training run: weights and the optimiser's state before every step, and the gradients.

    Args:
        weights: before every step, and after all, `[steps + 1, weights]`.
        states: before every step.
        gradients: of every step's loss.
        losses: of every step.
    """

    weights: Float[Array, "ends weights"]
    states: Any
    gradients: Float[Array, "steps weights"]
    losses: Float[Array, "steps"]


def step_of(
    net: Network, texts: Texts, optimiser: optax.GradientTransformation, of_examples: Float[Array, "examples"]
) -> Callable[[tuple[Array, Any], Array], tuple[tuple[Array, Any], tuple[Array, Any, Array, Array]]]:
    """Return a step of training, in which every example's loss is multiplied by a weight."""

    def loss(weights: Array, which: Array) -> Array:
        return (of_examples[which] * net.losses(weights, texts.examples[which])).mean()

    def step(carry: tuple[Array, Any], which: Array) -> tuple[tuple[Array, Any], tuple[Array, Any, Array, Array]]:
        weights, state = carry
        value, gradient = jax.value_and_grad(loss)(weights, which)
        updates, after = optimiser.update(gradient, state, weights)
        return (weights + updates, after), (weights, state, gradient, value)

    return step


def trained(net: Network, texts: Texts, optimiser: optax.GradientTransformation, of_examples: Array) -> Array:
    """Return the trained weights."""
    step = jax.checkpoint(step_of(net, texts, optimiser, of_examples))
    start = net.weights, optimiser.init(net.weights)
    return jax.lax.scan(lambda carry, which: (step(carry, which)[0], None), start, texts.order)[0][0]


@partial(jax.jit, static_argnames=("losses", "optimiser"))
def _path(weights: Array, texts: Texts, rate: Array, losses: Losses, optimiser: Optimiser) -> Path:
    rule = optimiser(rate)
    step = step_of(Network(weights, losses), texts, rule, jnp.ones(EXAMPLES))
    (last, _), (before, states, gradients, values) = jax.lax.scan(step, (weights, rule.init(weights)), texts.order)
    return Path(jnp.concatenate([before, last[None]]), states, gradients, values)


def path_of(net: Network, texts: Texts, optimiser: Optimiser, rate: float) -> Path:
    """Train with every example, and keep all that is on the way."""
    return _path(net.weights, texts, jnp.float32(rate), net.losses, optimiser)


@partial(jax.jit, static_argnames=("losses", "optimiser"))
def _retrained(
    weights: Array, texts: Texts, rate: Array, subsets: Array, losses: Losses, optimiser: Optimiser
) -> Array:
    net, rule = Network(weights, losses), optimiser(rate)

    def without(of_examples: Array) -> Array:
        return losses(trained(net, texts, rule, of_examples), texts.targets)

    return jax.lax.map(without, subsets, batch_size=SUBSETS)


def retrained(
    net: Network,
    texts: Texts,
    optimiser: Optimiser,
    rate: float,
    subsets: Float[np.ndarray, "subsets examples"],
) -> Float[np.ndarray, "subsets targets"]:
    """Train again with every subset of the examples, and return the losses of the targets."""
    found = _retrained(net.weights, texts, jnp.float32(rate), jnp.asarray(subsets, jnp.float32), net.losses, optimiser)
    return np.asarray(found)
