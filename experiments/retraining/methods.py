"""Scores of examples, each a forecast of what a target's loss would be without them.

A score is the part of an example in the change of a target's loss along the training; the forecast of a removal is the
change back, minus the sum of the scores of what is removed.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.forms.secant import secant
from duat_jax.training.update import Update
from experiments.long_context.tasks import BYTES
from experiments.retraining.networks import BATCH, EXAMPLES, STEPS, TARGETS, Path, Training

Multipliers = Float[Array, "steps targets weights"]
Method = Callable[[Training, Path], Array]
"""From a training and what is on its way to the score of every example for every target."""


def gradients_of(run: Training, texts: Array, weights: Array) -> Float[Array, "texts weights"]:
    """Return the gradient of every text's loss, one after the other."""
    # JAX 0.10.2 compiles those of 64 texts at once wrongly on CPUs.
    return jax.lax.map(lambda text: jax.grad(lambda weights: run.losses(weights, text[None])[0])(weights), texts)


def _gradients(run: Training, path: Path) -> Float[Array, "ends targets weights"]:
    """Return the gradient of every target's loss before every step, and after all."""
    return jax.lax.map(partial(gradients_of, run, run.texts.targets), path.weights)


def _ends(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the weights before and after the segment in which each step is."""
    first = np.arange(STEPS) // steps * steps
    return first, np.minimum(first + steps, STEPS)


def _secants(run: Training, path: Path, steps: int) -> Multipliers:
    """Return the secant's multiplier of every step, with one secant for so many steps."""

    def of_target(target: Array, end: Array, start: Array) -> Array:
        return secant(lambda weights: run.losses(weights, target[None])[0])(end, start).multiplier

    of_targets = jax.vmap(of_target, (0, None, None))
    first, last = (np.unique(ends) for ends in _ends(steps))
    pairs = path.weights[last], path.weights[first]
    return jax.lax.map(lambda pair: of_targets(run.texts.targets, *pair), pairs)[np.arange(STEPS) // steps]


def _first_order(run: Training, path: Path, steps: int) -> Multipliers:
    """Return the gradient at the beginning of the segment in which each step is."""
    return _gradients(run, path)[_ends(steps)[0]]


def _trapezoid(run: Training, path: Path, steps: int) -> Multipliers:
    """Return the mean of the gradients at both ends of the segment in which each step is."""
    gradients = _gradients(run, path)
    first, last = _ends(steps)
    return (gradients[first] + gradients[last]) / 2


def _last(run: Training, path: Path) -> Multipliers:
    """Return the gradient after all steps, for each of them."""
    gradient = gradients_of(run, run.texts.targets, path.weights[-1])
    return jnp.broadcast_to(gradient, (STEPS, *gradient.shape))


def _through_updates(run: Training, path: Path, multipliers: Multipliers) -> Array:
    """Return the parts of examples: the multipliers, taken back through the optimiser with its factors held."""
    update = Update(run.optimiser, run.weights)
    means = [jnp.zeros((multipliers.shape[1], *mean.shape[1:]), mean.dtype) for mean in update.means_of(path.states)]

    def back(means: list[Array], step: tuple) -> tuple[list[Array], Array]:
        weights, state, gradient, which, multiplier = step
        _, transposed = update.transposed(gradient, state, weights)
        found = jax.vmap(transposed)(multiplier, means)
        losses = lambda weights: run.losses(weights, run.texts.examples[which]) / BATCH  # noqa: E731
        rows = jax.vmap(lambda tangent: jax.jvp(losses, (weights,), (tangent,))[1])(found.gradients)
        return found.state, rows

    steps = (path.weights[:-1], path.states, path.gradients, run.texts.order, multipliers)
    _, rows = jax.lax.scan(back, means, steps, reverse=True)
    # An example's score is the sum over the steps that read it.
    flat = jnp.moveaxis(rows, 1, 0).reshape(rows.shape[1], -1)
    order = run.texts.order.reshape(-1)
    return jax.vmap(lambda of_target: jnp.zeros(EXAMPLES).at[order].add(of_target))(flat)


def _products_of_gradients(run: Training, path: Path, ends: np.ndarray, *, cosine: bool = False) -> Array:
    """Return minus the products of the gradients of targets and examples at some weights of the way, summed."""

    def at(weights: Array) -> Array:
        of_targets, of_examples = (gradients_of(run, of, weights) for of in (run.texts.targets, run.texts.examples))
        if cosine:
            of_targets, of_examples = (g / jnp.linalg.norm(g, axis=1, keepdims=True) for g in (of_targets, of_examples))
        return -of_targets @ of_examples.T

    return jax.lax.map(at, path.weights[ends]).sum(0)


def _through_training(run: Training, kept: tuple[float, ...]) -> Array:
    """Return the derivative of each target's loss by the weight of an example in the training."""
    # It is the mean over trainings in which all examples have one weight.
    at = jnp.asarray(kept)[:, None] * jnp.ones(EXAMPLES)
    return jax.lax.map(jax.jacrev(lambda counted: run.of_targets(run.trained(counted))), at).mean(0)


def _alike(run: Training, path: Path) -> Array:
    """Return minus the cosines of the counts of bytes of targets and examples."""
    counts = [
        jax.vmap(lambda text: jnp.zeros(BYTES).at[text].add(1))(each)
        for each in (run.texts.targets, run.texts.examples)
    ]
    targets, examples = (count / jnp.linalg.norm(count, axis=1, keepdims=True) for count in counts)
    return -targets @ examples.T


def _influence_function(run: Training, path: Path) -> Array:
    """Return minus `∇fᵀ (F + λ)⁻¹ ∇ℓ_i / N`, with the mean of the examples' `∇ℓ ∇ℓᵀ` for `F`."""
    # The damping `λ` is a tenth of the mean of the eigenvalues of `F` that aren't zero for their number.
    examples, targets = (gradients_of(run, of, path.weights[-1]) for of in (run.texts.examples, run.texts.targets))
    kernel = examples @ examples.T / EXAMPLES
    damping = 0.1 * jnp.trace(kernel) / EXAMPLES
    # (F + λ)⁻¹ gᵢ = Gᵀ (K + λ)⁻¹ eᵢ, as F Gᵀ = Gᵀ K.
    return -jnp.linalg.solve(kernel + damping * jnp.eye(EXAMPLES), examples @ targets.T).T / EXAMPLES


def _last_read(run: Training, path: Path) -> Array:
    """Return minus the number of the last step that reads an example, whatever the target."""
    steps = jnp.repeat(jnp.arange(STEPS, dtype=jnp.float32), BATCH)
    last = jnp.zeros(EXAMPLES).at[run.texts.order.reshape(-1)].max(steps)
    return -jnp.broadcast_to(last, (TARGETS, EXAMPLES))


def _sizes(run: Training, path: Path) -> Array:
    """Return minus the norms of the examples' gradients after the training, whatever the target."""
    gradients = gradients_of(run, run.texts.examples, path.weights[-1])
    return -jnp.broadcast_to(jnp.linalg.norm(gradients, axis=1), (TARGETS, EXAMPLES))


def _of_others(run: Training, path: Path) -> Array:
    """Return the mean of the other targets' scores by the exact ledger."""
    scores = _through_updates(run, path, _secants(run, path, ROOT))
    return (scores.sum(0) - scores) / (TARGETS - 1)


ROOT = math.isqrt(STEPS)
FEW = np.arange(0, STEPS + 1, ROOT)
"""The weights at which TracIn takes gradients."""
EXACT, START, TRAPEZOID, DERIVATIVE = "exact ledger", "first order", "trapezoid", "through training"
OTHERS = f"control: {EXACT} of the other targets"
SEGMENTS = {1: "step by step", ROOT: f"{ROOT} steps a segment", STEPS: "one segment"}


def _along(multipliers: Callable[[Training, Path, int], Multipliers], steps: int) -> Method:
    return lambda run, path: _through_updates(run, path, multipliers(run, path, steps))


METHODS: dict[str, Method] = {
    **{
        f"{name}, {words}": _along(multipliers, steps)
        for name, multipliers in ((EXACT, _secants), (TRAPEZOID, _trapezoid), (START, _first_order))
        for steps, words in SEGMENTS.items()
    },
    "gradient after all": lambda run, path: _through_updates(run, path, _last(run, path)),
    DERIVATIVE: lambda run, path: _through_training(run, (1.0,)),
    f"{DERIVATIVE}, mean of three": lambda run, path: _through_training(run, (1.0, 0.75, 0.5)),
    "TracIn": partial(_products_of_gradients, ends=FEW),
    "product of gradients after all": partial(_products_of_gradients, ends=np.array([STEPS])),
    "cosine of gradients after all": partial(_products_of_gradients, ends=np.array([STEPS]), cosine=True),
    "influence function": _influence_function,
    OTHERS: _of_others,
    "control: last step read": _last_read,
    "control: size of the gradient": _sizes,
    "control: alike bytes": _alike,
}
"""All scores of examples; down to the derivatives through the training they are changes of a loss in nats."""


@partial(jax.jit, static_argnames="method")
def scores_of(run: Training, path: Path, method: str) -> Float[Array, "targets examples"]:
    """Return the scores of a method."""
    return METHODS[method](run, path)
