"""Intervals of confidence hold what they are said to hold."""

import numpy as np
import pytest
from scipy import stats

from duat_jax.evaluation.statistics import bootstrap, bootstrap_of_groups


def test_the_interval_is_that_of_a_mean():
    values = np.random.default_rng(0).exponential(size=400)
    found = bootstrap(values)
    error = values.std() / 20
    assert found.value == values.mean()
    assert (found.low, found.high) == pytest.approx(
        (found.value - 1.96 * error, found.value + 1.96 * error), abs=0.2 * error
    )
    reference = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=5000).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(reference), abs=0.2 * error)
    # Of a skew sample it isn't symmetrical.
    assert found.high - found.value > found.value - found.low
    # Nine of ten intervals and a half hold the mean: 95 % of 100 samples, within four standard errors.
    samples = np.random.default_rng(1).normal(size=(100, 50))
    intervals = [bootstrap(sample) for sample in samples]
    assert 88 <= sum(found.low < 0 < found.high for found in intervals) <= 100


def test_the_interval_of_a_ratio_of_means_is_a_library_s():
    values = np.random.default_rng(2).exponential(size=(60, 2))
    found = bootstrap(values, lambda means: means[..., 0] / means[..., 1])

    def ratio(top, bottom, axis):
        return top.mean(axis) / bottom.mean(axis)

    reference = stats.bootstrap(tuple(values.T), ratio, paired=True, method="percentile", n_resamples=5000)
    bounds = reference.confidence_interval
    assert found.value == pytest.approx(values[:, 0].mean() / values[:, 1].mean(), rel=1e-14)
    assert (found.low, found.high) == pytest.approx(tuple(bounds), abs=0.1 * (found.high - found.low))


def test_many_comparisons_have_a_wider_interval():
    values = np.random.default_rng(3).normal(size=200)
    one, twelve = bootstrap(values), bootstrap(values, comparisons=12)
    ratio = (twelve.high - twelve.low) / (one.high - one.low)
    assert ratio == pytest.approx(stats.norm.ppf(1 - 0.025 / 12) / stats.norm.ppf(0.975), rel=0.1)


@pytest.mark.slow
def test_an_interval_over_groups_holds_the_mean_of_new_groups():
    """Groups differ by more than the units in them do: units alone would say too little."""
    draw = np.random.default_rng(4)
    held = units_alone = 0
    for _ in range(100):
        groups = [draw.normal(draw.normal(), 0.1, size=10) for _ in range(12)]
        found, alone = bootstrap_of_groups(groups), bootstrap(np.concatenate(groups))
        held += found.low < 0 < found.high
        units_alone += alone.low < 0 < alone.high
    assert held >= 84
    assert units_alone < held - 20
