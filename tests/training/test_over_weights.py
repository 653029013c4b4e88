"""The ledger of a number along a training: by its closed form, continued from a file, and beside retraining."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import near, relative
from training_cases import RATE, STEPS, batches, first_weights, number, terms

import duat_jax as duat
from duat_jax.training.kept import train
from duat_jax.training.over_examples.compute import influence
from duat_jax.training.over_weights.compute import begin, follow
from duat_jax.training.run import Run


@pytest.fixture(autouse=True)
def _as_optax_needs_it():
    with jax.numpy_dtype_promotion("standard"):
        yield


def states(every):
    """Return the weights after every few steps of Adam."""
    optimiser, weights = optax.adam(RATE), first_weights()
    state, found = optimiser.init(weights), [weights]
    for step in range(STEPS):
        gradients = jax.grad(lambda weights, step=step: terms(weights, batches(step)).sum())(weights)
        updates, state = optimiser.update(gradients, state, weights)
        weights = optax.apply_updates(weights, updates)
        if (step + 1) % every == 0 or step + 1 == STEPS:
            found.append(weights)
    return found


def test_of_a_quadratic_a_part_is_the_midpoints_gradient_times_the_change():
    """With `f = wᵀ A w / 2` a segment's parts are `A (w + w') / 2 · (w' − w)`, entry by entry."""
    random = np.random.default_rng(0)
    matrix = random.normal(size=(5, 5))
    matrix += matrix.T
    path = random.normal(size=(4, 5))

    def quadratic(w):
        return w @ jnp.asarray(matrix) @ w / 2

    ledger = begin(quadratic, jnp.asarray(path[0]))
    for weights in path[1:]:
        ledger = follow(quadratic, ledger, jnp.asarray(weights))
    parts = [matrix @ (a + b) / 2 * (b - a) for a, b in pairwise(path)]
    near(ledger.parts["weights"], np.sum(parts, 0), 1e-12)
    near(ledger.sums["weights"], np.sum(parts, 1), 1e-12)
    near(ledger.values, [w @ matrix @ w / 2 for w in path], 1e-12)


def test_a_ledger_that_was_saved_goes_on(tmp_path):
    path = states(every=2)
    whole = begin(number, path[0])
    for weights in path[1:]:
        whole = follow(number, whole, weights)
    kept = begin(number, path[0])
    for i, weights in enumerate(path[1:]):
        kept.save(tmp_path / str(i))
        kept = follow(number, duat.open(tmp_path / str(i)), weights)
    assert [each.verdict for each in kept.completeness] == ["holds"] * (len(path) - 1)
    near(kept.values, whole.values, 0)
    for name, part in whole.parts.items():
        near(kept.parts[name], part, 0)
        near(kept.sums[name], whole.sums[name], 0)
    relative(sum(part.sum() for part in kept.parts.values()), number(path[-1]) - number(path[0]), 1e-9)


def without_each(x, y, rate, steps):
    """Return by the closed form of gradient descent on squares the last weights with all rows, and without each."""

    def descend(x, y, rows):
        matrix, right = x.T @ x / rows, x.T @ y / rows
        shrunk = np.eye(x.shape[1]) - rate * matrix
        return sum(np.linalg.matrix_power(shrunk, step) for step in range(steps)) @ (rate * right)

    rows = len(x)
    return descend(x, y, rows), [descend(np.delete(x, i, 0), np.delete(y, i), rows) for i in range(rows)]


def test_a_mislabelled_example_raised_the_loss_and_would_not_be_missed(tmp_path):
    """Least squares by gradient descent, where training without an example has a closed form.

    The part and what would be missed agree on which example is mislabelled, and differ in size: without it the others
    would have moved the weights in later steps, which no part says.
    """
    random, rate, steps, wrong = np.random.default_rng(3), 0.2, 40, 2
    x, true = random.normal(size=(8, 3)), np.array([1.0, -2.0, 0.5])
    y = x @ true
    y[wrong] = -y[wrong]
    fresh = random.normal(size=(20, 3))

    def loss(w):
        return ((jnp.asarray(fresh) @ w - fresh @ true) ** 2).mean() / 2

    last, others = without_each(x, y, rate, steps)
    run = Run(
        lambda w, batch: (batch[0] @ w - batch[1]) ** 2 / 2 / len(x),
        optax.sgd(rate),
        lambda step: (jnp.asarray(x), jnp.asarray(y)),
        steps,
    )
    kept = train(run, jnp.zeros(3), tmp_path, every=1)
    relative(kept.last, last, 1e-9)
    found = influence(kept, loss)
    parts = found.rows.sum(0)
    missed = np.array([float(loss(jnp.asarray(last)) - loss(jnp.asarray(without))) for without in others])
    assert found.completeness.verdict == "holds"
    assert np.argmax(parts) == np.argmax(missed) == wrong and parts[wrong] > 0 and missed[wrong] > 0
    assert np.sort(parts)[-2] < parts[wrong] / 2
    # Parts sum to the change of the loss; what is missed of each example alone doesn't.
    relative(parts.sum(), loss(jnp.asarray(last)) - loss(jnp.zeros(3)), 1e-9)
    assert abs(missed.sum() - found.difference) > 0.2 * abs(found.difference)
