"""Training on new examples in every step, with the learning rate and the norms chosen from a grid."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from experiments.generalization.networks import Network, Sizes, drawn
from experiments.generalization.tasks import Examples, Task


class Budget(NamedTuple):
    """The training that every network has.

    Args:
        steps: number of steps.
        batch: number of examples in each.
    """

    steps: int
    batch: int


@jax.jit
def outputs(network: Network, examples: Examples) -> Float[Array, "examples outputs"]:
    """Return the outputs of a network."""
    return jax.vmap(network)(examples.inputs, examples.mask)


def loss(network: Network, examples: Examples) -> Float[Array, ""]:
    """Return the mean squared error of training."""
    squares = (outputs(network, examples) - examples.targets) ** 2
    return (squares if examples.weights is None else examples.weights[:, None] * squares).mean()


def error(written: Float[Array, "*examples outputs"], examples: Examples) -> Float[Array, ""]:
    """Return the root mean square error."""
    return jnp.sqrt(((written - examples.targets) ** 2).mean())


@partial(jax.jit, static_argnames=("sizes", "task", "budget"))
def train(
    sizes: Sizes, task: Task, budget: Budget, keys: Key[Array, "networks"], rates: Float[Array, "networks"]
) -> Network:
    """Train networks of the same sizes on new examples in every step, with Adam on the mean squared error."""
    return jax.vmap(partial(_train, sizes, task, budget))(keys, rates)


def _train(sizes: Sizes, task: Task, budget: Budget, key: Array, rate: Array) -> Network:
    weights_key, examples_key = jax.random.split(key)
    network = drawn(sizes, task, weights_key)
    share = optax.warmup_cosine_decay_schedule(0.0, 1.0, max(1, budget.steps // 20), max(2, budget.steps))
    rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(lambda step: rate * share(step)))

    def step(state: tuple[Network, Any], i: Array) -> tuple[tuple[Network, Any], None]:
        network, of_rule = state
        examples = task.draw(jax.random.fold_in(examples_key, i), budget.batch)
        gradient = jax.grad(loss)(network, examples)
        updates, of_rule = rule.update(gradient, of_rule, network)
        return (optax.apply_updates(network, updates), of_rule), None

    return jax.lax.scan(step, (network, rule.init(network)), jnp.arange(budget.steps))[0][0]


def each(networks: Network) -> Iterator[Network]:
    """Yield the single networks of what `train` returns."""
    for i in range(len(jax.tree.leaves(networks)[0])):
        yield jax.tree.map(lambda leaf, i=i: leaf[i], networks)
