"""Training runs as functions of the number of a step: what it takes to run them again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.training.update import Weights


class Moment(NamedTuple):
    """A training run before one of its steps.

    Args:
        weights: the weights.
        state: the optimiser's state.
    """

    weights: Weights
    state: Any


class TrainingStep(NamedTuple):
    """One step of a training run.

    Args:
        number: how many steps came before it.
        before: weights and state before it.
        gradients: the gradient of the loss.
        after: the same after the optimiser's update.
        following: the same before the next step, where something else may have changed the weights.
        loss: the loss of its batch, before the update.
    """

    number: int
    before: Moment
    gradients: Weights
    after: Moment
    following: Moment
    loss: Float[Array, ""]


@dataclass(frozen=True, eq=False)
class Run:
    """The definition of a training run: each step's loss as a sum over examples, the optimiser, and the batches.

    Args:
        terms: from weights and a batch to an array whose sum is the loss of a step, such as the losses of all tokens
            divided by their number. Every entry gets a part.
        optimiser: any optimiser of optax.
        batches: from the number of a step to its batch, the same one whenever it is asked; or a sequence of them, such
            as an array.
        steps: the number of steps.
        between: from the number of a step and the weights after it to those with which the next one begins, where a
            loop changes weights outside of the optimiser.

    Raises:
        DuatError: if there is no step, or there are fewer batches than steps.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> run = Run(lambda w, batch: (w - batch) ** 2, optax.sgd(0.25), [jnp.ones(1), jnp.zeros(1)], steps=2)
        >>> run.batch(1).tolist()
        [0.0]
    """

    terms: Callable[[Weights, Any], Float[Array, "..."]]
    optimiser: optax.GradientTransformation
    batches: Callable[[int], Any] | Sequence[Any] | Array | np.ndarray
    steps: int
    between: Callable[[int, Weights], Weights] | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise DuatError(f"a run of {self.steps} steps: give at least one")
        if not callable(self.batches) and len(self.batches) < self.steps:
            raise DuatError(f"there are {len(self.batches)} batches for {self.steps} steps: give one for each step")

    def batch(self, number: int) -> Any:
        """Return the batch of a step.

        Args:
            number: how many steps come before it.
        """
        return self.batches(number) if callable(self.batches) else self.batches[number]

    def program(self, weights: Weights, state: Any, batch: Any) -> tuple[Moment, Weights, Array]:
        """Return weights and state after a step, the gradient, and the loss before it.

        Args:
            weights: the weights.
            state: the optimiser's state.
            batch: the batch.
        """
        loss, gradients = jax.value_and_grad(lambda weights: self.terms(weights, batch).sum())(weights)
        updates, after = self.optimiser.update(gradients, state, weights)
        return Moment(optax.apply_updates(weights, updates), after), gradients, loss

    @cached_property
    def _step(self) -> Callable[[Weights, Any, Any], tuple[Moment, Weights, Array]]:
        """One compiled program for the training and for running it again: another one would round otherwise."""
        return jax.jit(self.program)

    def step(self, number: int, before: Moment, batch: Any) -> TrainingStep:
        """Do one step.

        Args:
            number: how many steps came before it.
            before: weights and state before it.
            batch: its batch.
        """
        after, gradients, loss = self._step(*before, batch)
        following = after if self.between is None else after._replace(weights=self.between(number, after.weights))
        if _kind_of(following.weights) != _kind_of(after.weights):
            raise DuatError(f"between({number}, weights) returns arrays of another structure, shape or dtype")
        return TrainingStep(number, before, gradients, after, following, loss)


def _kind_of(weights: Weights) -> Any:
    """Return the structure of a pytree, and the shape and dtype of each of its arrays."""
    return jax.tree.structure(weights), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(weights)]
