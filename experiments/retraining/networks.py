"""Two small networks that predict the next byte, their texts, and their training with a weight for every example."""

from collections.abc import Callable
from dataclasses import dataclass
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
    embedding, inner, outer = jax.random.split(jax.random.key(seed), 3)
    return {
        "embedding": jax.random.normal(embedding, (BYTES, WIDTH)),
        "in": (CONTEXT * WIDTH) ** -0.5 * jax.random.normal(inner, (CONTEXT * WIDTH, HIDDEN)),
        "out": HIDDEN**-0.5 * jax.random.normal(outer, (HIDDEN, BYTES)),
        "bias": jnp.zeros(HIDDEN),
    }


@cache
def _losses_of(kind: str) -> Losses:
    """Return one function for all networks of a kind, so that its programs are compiled once."""
    _, as_tree = ravel_pytree(_first_weights(kind, 0))
    if kind == PERCEPTRON:
        return lambda weights, texts: _perceptron_losses(as_tree(weights), texts)
    return lambda weights, texts: token_losses(as_tree(weights), texts).mean(-1)


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


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("weights", "texts", "rate"),
    meta_fields=("losses", "optimiser_of"),
)
@dataclass(frozen=True)
class Training:
    """The training of a network.

    Args:
        weights: the first weights, as one vector.
        texts: what it reads.
        rate: the learning rate.
        losses: the mean loss of each text, as a function of such a vector.
        optimiser_of: the optimiser of a rate.
    """

    weights: Float[Array, "weights"]
    texts: Texts
    rate: Float[Array, ""]
    losses: Losses
    optimiser_of: Optimiser

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """The optimiser."""
        return self.optimiser_of(self.rate)

    def of_targets(self, weights: Float[Array, "weights"]) -> Float[Array, "targets"]:
        """Return the losses of the targets."""
        return self.losses(weights, self.texts.targets)

    def step(self, counted: Float[Array, "examples"], carry: tuple[Array, Any], which: Array) -> tuple[Any, Any]:
        """Do one step, in which every example's loss is multiplied by a weight; also return what was before it."""

        def loss(weights: Array) -> Array:
            return (counted[which] * self.losses(weights, self.texts.examples[which])).mean()

        weights, state = carry
        value, gradient = jax.value_and_grad(loss)(weights)
        updates, after = self.optimiser.update(gradient, state, weights)
        return (weights + updates, after), (weights, state, gradient, value)

    def trained(self, counted: Float[Array, "examples"]) -> Float[Array, "weights"]:
        """Return the trained weights."""
        step = jax.checkpoint(partial(self.step, counted))
        start = self.weights, self.optimiser.init(self.weights)
        return jax.lax.scan(lambda carry, which: (step(carry, which)[0], None), start, self.texts.order)[0][0]


def make_training(kind: str, seed: int, optimiser_of: Optimiser, rate: float) -> Training:
    """Return the training of a network with random first weights."""
    weights = ravel_pytree(_first_weights(kind, seed))[0]
    return Training(weights, draw_texts(seed), jnp.float32(rate), _losses_of(kind), optimiser_of)


@jax.jit
def path_of(run: Training) -> Path:
    """Train with every example, and keep all that is on the way."""
    start = run.weights, run.optimiser.init(run.weights)
    (last, _), on_the_way = jax.lax.scan(partial(run.step, jnp.ones(EXAMPLES)), start, run.texts.order)
    before, *rest = on_the_way
    return Path(jnp.concatenate([before, last[None]]), *rest)


@jax.jit
def retrained(run: Training, subsets: Float[Array, "subsets examples"]) -> Float[Array, "subsets targets"]:
    """Train again with every subset of the examples, and return the losses of the targets."""
    return jax.lax.map(lambda counted: run.of_targets(run.trained(counted)), subsets, batch_size=SUBSETS)
