"""The study of forecasts of retraining: its scores by other ways, its regression by another library, its verdicts."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import near, relative

from duat_jax.training import Run, influence, train
from experiments.estimate import estimate
from experiments.retraining import forecasts, methods, networks, run


def test_the_regression_forecasts_each_fold_from_the_others_with_the_best_penalty_of_every_target():
    draw = np.random.default_rng(0)
    removed = draw.integers(0, 2, (100, 6)).astype(float)
    change = removed @ draw.normal(size=(6, 2)) + np.array([0.1, 3.0]) * draw.normal(size=(100, 2))
    found = forecasts._of_other_folds(removed, change)
    x, fold = removed[50:], removed[:50]

    def fitted(x, y, penalty):
        off = x - x.mean(0)
        return np.linalg.solve(off.T @ off + penalty * np.eye(6), off.T @ (y - y.mean()))

    def error(y, penalty):
        """Return the mean square of what is missed of each subset by a fit to all others."""
        left = [np.arange(50) != i for i in range(50)]
        fits = [(fitted(x[rest], y[rest], penalty), x[rest].mean(0), y[rest].mean()) for rest in left]
        return np.mean([(y[i] - mean - (x[i] - at) @ of) ** 2 for i, (of, at, mean) in enumerate(fits)])

    for target in range(2):
        y = change[50:, target]
        best = min(forecasts.PENALTIES, key=lambda penalty, y=y: error(y, penalty))
        near(found[:50, target], fold @ fitted(x, y, best), 1e-9)


def test_a_forecast_that_is_right_has_agreement_and_slope_one():
    draw = np.random.default_rng(0)
    kept = {
        forecasts.HALVES: draw.integers(0, 2, (100, 12)).astype(float),
        forecasts.FEW: draw.integers(0, 2, (50, 12)) * 1.0,
    }
    scores = draw.normal(size=(2, 12))
    changes = {kind: -(1 - subsets) @ scores.T for kind, subsets in kept.items()}
    rows = forecasts.agreements(changes, {"right": scores, "wrong": -scores}, kept)
    found = {(row["removed"], row["method"]): row for row in rows}
    for kind in kept:
        near(found[kind, "right"]["agreement"], 1, 1e-12)
        near([found[kind, "right"]["slope"], found[kind, "wrong"]["slope"]], [1, -1], 1e-9)
    near(found[forecasts.HALVES, forecasts.RIDGE]["agreement"], 1, 0.01)


@pytest.mark.parametrize(
    ("values", "is_level", "is_ahead"),
    [
        ([0.06, 0.07, 0.08], "undecided", "confirmed"),
        ([0.07, 0.071, 0.072], "refuted", "confirmed"),
        ([0.02, 0.021, 0.022], "confirmed", "refuted"),
        ([-0.01, 0.0, 0.01], "confirmed", "refuted"),
        ([-0.07, -0.071, -0.072], "refuted", "refuted"),
        ([-0.1, 0.0, 0.1], "undecided", "undecided"),
    ],
)
def test_verdicts_follow_the_stated_bounds(values, is_level, is_ahead):
    assert (run.level(estimate(values)), run.ahead(estimate(values))) == (is_level, is_ahead)


@pytest.mark.slow
def test_scores_are_those_of_other_ways(tmp_path):
    """The exact ledger is that of `duat.training`, the derivative through training a difference of two trainings."""
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):
        optimiser, rate = partial(optax.sgd, momentum=0.5), 0.3
        small = networks.make_training(networks.PERCEPTRON, 1, optimiser, rate)
        texts, path = small.texts, networks.path_of(small)

        def terms(weights, which):
            return small.losses(weights, texts.examples[which]) / networks.BATCH

        def number(weights):
            return small.losses(weights, texts.targets[:1])[0]

        whole = Run(terms, optimiser(rate), texts.order, networks.STEPS)
        found = influence(train(whole, small.weights, tmp_path, every=methods.ROOT), number)
        scores = methods.scores_of(small, path, f"{methods.EXACT}, {methods.SEGMENTS[methods.ROOT]}")[0]
        near(scores, found.by_example(np.asarray(texts.order), networks.EXAMPLES), 2e-4)

        weights = np.ones((2, networks.EXAMPLES))
        weights[:, 3] += [1e-2, -1e-2]
        ends = networks.retrained(small, jnp.asarray(weights, jnp.float32))
        derivative = methods.scores_of(small, path, methods.DERIVATIVE)[:, 3]
        near((ends[0] - ends[1]) / 2e-2, derivative, 3e-3)
        assert np.abs(derivative).max() > 0.05


def test_gradients_of_many_texts_are_those_of_forward_mode():
    """JAX 0.10.2 compiles the gradients of 64 texts at once wrongly on CPUs, by a third of the largest."""
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):
        of = networks.make_training(networks.TRANSFORMER, 0, optax.sgd, 0.1)
        direction = jax.random.normal(jax.random.key(0), of.weights.shape)
        losses = lambda weights: of.losses(weights, of.texts.examples)  # noqa: E731
        expected = jax.jit(lambda: jax.jvp(losses, (of.weights,), (direction,))[1])()
        gradients = jax.jit(methods.gradients_of)(of, of.texts.examples, of.weights)
        near(gradients @ direction, expected, 1e-3)


def test_every_subset_leaves_out_as_many_as_is_said():
    for kind, (count, removed) in run.REMOVED.items():
        kept = run.subsets(kind, 5)
        assert kept.shape == (count, networks.EXAMPLES)
        relative((1 - kept).sum(1), np.full(count, removed), 1e-12)
