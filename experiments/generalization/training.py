"""Training on new examples in every step, with the learning rate and the norms chosen from a grid."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

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
    """Return the outputs of a network.

    Args:
        network: the network.
        examples: whose inputs it reads.
    """
    return jax.vmap(network)(examples.inputs, examples.mask)


def error(written: Float[Array, "*examples outputs"], examples: Examples) -> Float[Array, ""]:
    """Return the root mean square error.

    Args:
        written: outputs, `[..., outputs]`.
        examples: with the right ones.
    """
    return jnp.sqrt(((written - examples.targets) ** 2).mean())


def train(sizes: Sizes, task: Task, budget: Budget, key: Array, rate: float) -> Network:
    """Train a network on new examples in every step, with Adam on the mean squared error.

    Args:
        sizes: its sizes.
        task: the task.
        budget: how long.
        key: its weights and the examples.
        rate: the highest learning rate; it rises over the first twentieth of the steps and falls to zero.
    """
    weights_key, examples_key = jax.random.split(key)
    network = drawn(sizes, task, weights_key)
    state = _rule(budget, rate).init(network)
    for i in range(budget.steps):
        examples = _drawn(task, budget.batch, jax.random.fold_in(examples_key, i))
        network, state = _updated(network, state, _gradient(network, examples), budget, rate)
    return network


# Three programs, since XLA's single one of all of a step is up to three times as slow on a CPU.
@partial(jax.jit, static_argnames=("task", "batch"))
def _drawn(task: Task, batch: int, key: Array) -> Examples:
    return task.draw(key, batch)


@jax.jit
def _gradient(network: Network, examples: Examples) -> Network:
    return jax.grad(lambda network: ((outputs(network, examples) - examples.targets) ** 2).mean())(network)


@partial(jax.jit, static_argnames="budget", donate_argnums=(0, 1))
def _updated(network: Network, state: Any, gradient: Network, budget: Budget, rate: Array) -> tuple[Network, Any]:
    updates, state = _rule(budget, rate).update(gradient, state, network)
    return optax.apply_updates(network, updates), state


def _rule(budget: Budget, rate: Array | float) -> optax.GradientTransformation:
    share = optax.warmup_cosine_decay_schedule(0.0, 1.0, max(1, budget.steps // 20), max(2, budget.steps))
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(lambda step: rate * share(step)))
