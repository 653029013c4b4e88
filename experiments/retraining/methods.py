"""Scores of examples, each a forecast of what a target's loss would be without them.

A score is the part of an example in the change of a target's loss along the training; the forecast of a removal is the
change back, minus the sum of the scores of what is removed.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from duat_jax.forms.secant import secant
from duat_jax.training.update import Update
from experiments.long_context.tasks import BYTES
from experiments.retraining.networks import (
    BATCH,
    EXAMPLES,
    STEPS,
    TARGETS,
    Losses,
    Network,
    Optimiser,
    Path,
    Texts,
    trained,
)

Scores = Float[np.ndarray, "targets examples"]


class Trained(NamedTuple):
    """A training run that is explained.

    Args:
        net: the network.
        texts: what it reads.
        optimiser: the optimiser.
        path: what is on the way.
    """

    net: Network
    texts: Texts
    optimiser: optax.GradientTransformation
    path: Path


def _target_losses(run: Trained) -> Callable[[Array], Array]:
    return lambda weights: run.net.losses(weights, run.texts.targets)


def _gradients(run: Trained) -> Float[Array, "ends targets weights"]:
    """Return the gradient of every target's loss before every step, and after all."""
    return jax.lax.map(jax.jacrev(_target_losses(run)), run.path.weights)


def _ends(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the weights before and after the segment in which each step is."""
    first = np.arange(STEPS) // steps * steps
    return first, np.minimum(first + steps, STEPS)


def _secants(run: Trained, steps: int) -> Float[Array, "steps targets weights"]:
    """Return the secant's multiplier of every step, with one secant for so many steps."""

    def of_target(target: Array, end: Array, start: Array) -> Array:
        return secant(lambda weights: run.net.losses(weights, target[None])[0])(end, start).multiplier

    of_targets = jax.vmap(of_target, (0, None, None))
    first, last = (np.unique(ends) for ends in _ends(steps))
    pairs = run.path.weights[last], run.path.weights[first]
    return jax.lax.map(lambda pair: of_targets(run.texts.targets, *pair), pairs)[np.arange(STEPS) // steps]


def _first_order(run: Trained, steps: int) -> Float[Array, "steps targets weights"]:
    """Return the gradient at the beginning of the segment in which each step is."""
    return _gradients(run)[_ends(steps)[0]]


def _trapezoid(run: Trained, steps: int) -> Float[Array, "steps targets weights"]:
    """Return the mean of the gradients at both ends of the segment in which each step is."""
    gradients = _gradients(run)
    first, last = _ends(steps)
    return (gradients[first] + gradients[last]) / 2


def _last(run: Trained) -> Float[Array, "steps targets weights"]:
    """Return the gradient after all steps, for each of them."""
    gradient = jax.jacrev(_target_losses(run))(run.path.weights[-1])
    return jnp.broadcast_to(gradient, (STEPS, *gradient.shape))


def _by_example(run: Trained, rows: Float[Array, "steps targets batch"]) -> Array:
    """Return the sums of rows of batches over the steps that read an example."""
    order = run.texts.order.reshape(-1)
    flat = jnp.moveaxis(rows, 1, 0).reshape(rows.shape[1], -1)
    return jax.vmap(lambda of_target: jnp.zeros(EXAMPLES).at[order].add(of_target))(flat)


def _through_updates(run: Trained, multipliers: Float[Array, "steps targets weights"]) -> Array:
    """Return the parts of examples: the multipliers, taken back through the optimiser with its factors held."""
    update = Update(run.optimiser, run.net.weights)
    path = run.path
    means = [jnp.zeros((multipliers.shape[1], *mean.shape[1:]), mean.dtype) for mean in update.means_of(path.states)]

    def back(means: list[Array], step: tuple) -> tuple[list[Array], Array]:
        weights, state, gradient, which, multiplier = step
        _, transposed = update.transposed(gradient, state, weights)
        found = jax.vmap(transposed)(multiplier, means)
        losses = lambda weights: run.net.losses(weights, run.texts.examples[which]) / BATCH  # noqa: E731
        rows = jax.vmap(lambda tangent: jax.jvp(losses, (weights,), (tangent,))[1])(found.gradients)
        return found.state, rows

    steps = (path.weights[:-1], path.states, path.gradients, run.texts.order, multipliers)
    _, rows = jax.lax.scan(back, means, steps, reverse=True)
    return _by_example(run, rows)


def _products_of_gradients(run: Trained, ends: np.ndarray, *, cosine: bool = False) -> Array:
    """Return minus the products of the gradients of targets and examples at some weights of the way, summed."""

    def at(weights: Array) -> Array:
        of_targets = jax.jacrev(_target_losses(run))(weights)
        of_examples = jax.jacrev(lambda weights: run.net.losses(weights, run.texts.examples))(weights)
        if cosine:
            of_targets, of_examples = (g / jnp.linalg.norm(g, axis=1, keepdims=True) for g in (of_targets, of_examples))
        return -of_targets @ of_examples.T

    return jax.lax.map(at, run.path.weights[ends]).sum(0)


def _through_training(run: Trained, kept: tuple[float, ...]) -> Array:
    """Return the derivative of each target's loss by the weight of an example in the training."""
    # It is the mean over trainings in which all examples have one weight.

    def losses(of_examples: Array) -> Array:
        return _target_losses(run)(trained(run.net, run.texts, run.optimiser, of_examples))

    at = jnp.asarray(kept)[:, None] * jnp.ones(EXAMPLES)
    return jax.lax.map(jax.jacrev(losses), at).mean(0)


def _alike(run: Trained) -> Array:
    """Return minus the cosines of the counts of bytes of targets and examples."""
    counts = [
        jax.vmap(lambda text: jnp.zeros(BYTES).at[text].add(1))(each)
        for each in (run.texts.targets, run.texts.examples)
    ]
    targets, examples = (count / jnp.linalg.norm(count, axis=1, keepdims=True) for count in counts)
    return -targets @ examples.T


def _example_gradients(run: Trained) -> Float[Array, "examples weights"]:
    """Return the gradient of every example's loss after the training."""
    return jax.jacrev(lambda weights: run.net.losses(weights, run.texts.examples))(run.path.weights[-1])


def _influence_function(run: Trained) -> Array:
    """Return minus `∇fᵀ (F + λ)⁻¹ ∇ℓ_i / N`, with the mean of the examples' `∇ℓ ∇ℓᵀ` for `F`."""
    # The damping `λ` is a tenth of the mean of the eigenvalues of `F` that aren't zero for their number.
    examples, targets = _example_gradients(run), jax.jacrev(_target_losses(run))(run.path.weights[-1])
    kernel = examples @ examples.T / EXAMPLES
    damping = 0.1 * jnp.trace(kernel) / EXAMPLES
    # (F + λ)⁻¹ gᵢ = Gᵀ (K + λ)⁻¹ eᵢ, as F Gᵀ = Gᵀ K.
    return -jnp.linalg.solve(kernel + damping * jnp.eye(EXAMPLES), examples @ targets.T).T / EXAMPLES


def _last_read(run: Trained) -> Array:
    """Return minus the number of the last step that reads an example, whatever the target."""
    last = (
        jnp.zeros(EXAMPLES).at[run.texts.order.reshape(-1)].max(jnp.repeat(jnp.arange(STEPS, dtype=jnp.float32), BATCH))
    )
    return -jnp.broadcast_to(last, (TARGETS, EXAMPLES))


def _sizes(run: Trained) -> Array:
    """Return minus the norms of the examples' gradients after the training, whatever the target."""
    return -jnp.broadcast_to(jnp.linalg.norm(_example_gradients(run), axis=1), (TARGETS, EXAMPLES))


def _of_others(run: Trained) -> Array:
    """Return the mean of the other targets' scores by the exact ledger."""
    scores = _through_updates(run, _secants(run, ROOT))
    return (scores.sum(0) - scores) / (TARGETS - 1)


ROOT = math.isqrt(STEPS)
FEW = np.arange(0, STEPS + 1, ROOT)
"""The weights at which TracIn takes gradients."""
EXACT, START, TRAPEZOID, DERIVATIVE = "exact ledger", "first order", "trapezoid", "through training"
OTHERS = f"control: {EXACT} of the other targets"
SEGMENTS = {1: "step by step", ROOT: f"{ROOT} steps a segment", STEPS: "one segment"}


def _with(multipliers: Callable[[Trained, int], Array], steps: int) -> Callable[[Trained], Array]:
    return lambda run: _through_updates(run, multipliers(run, steps))


ON_THE_SCALE: dict[str, Callable[[Trained], Array]] = {
    **{f"{EXACT}, {words}": _with(_secants, steps) for steps, words in SEGMENTS.items()},
    **{f"{TRAPEZOID}, {words}": _with(_trapezoid, steps) for steps, words in SEGMENTS.items()},
    **{f"{START}, {words}": _with(_first_order, steps) for steps, words in SEGMENTS.items()},
    "gradient after all": lambda run: _through_updates(run, _last(run)),
    DERIVATIVE: lambda run: _through_training(run, (1.0,)),
    f"{DERIVATIVE}, mean of three": lambda run: _through_training(run, (1.0, 0.75, 0.5)),
}
"""The scores that are changes of a loss in nats, `[targets, examples]`, by method."""
METHODS: dict[str, Callable[[Trained], Array]] = ON_THE_SCALE | {
    "TracIn": lambda run: _products_of_gradients(run, FEW),
    "product of gradients after all": lambda run: _products_of_gradients(run, np.array([STEPS])),
    "cosine of gradients after all": lambda run: _products_of_gradients(run, np.array([STEPS]), cosine=True),
    "influence function": _influence_function,
    OTHERS: _of_others,
    "control: last step read": _last_read,
    "control: size of the gradient": _sizes,
    "control: alike bytes": _alike,
}
"""All scores of examples."""


@partial(jax.jit, static_argnames=("method", "losses", "optimiser"))
def _scores(
    weights: Array, texts: Texts, path: Path, rate: Array, method: str, losses: Losses, optimiser: Optimiser
) -> Array:
    return METHODS[method](Trained(Network(weights, losses), texts, optimiser(rate), path))


def scores_of(net: Network, texts: Texts, path: Path, optimiser: Optimiser, rate: float, method: str) -> Scores:
    """Return the scores of a method."""
    return np.asarray(_scores(net.weights, texts, path, jnp.float32(rate), method, net.losses, optimiser))
