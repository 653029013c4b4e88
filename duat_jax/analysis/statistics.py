"""Estimates with their intervals of confidence, by drawing the measured units again."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

RESAMPLES = 2000

Statistic = Callable[[np.ndarray], float]
"""A number of measured units, `[units, ...]`."""


class Estimate(NamedTuple):
    """A number that was measured on a sample, and its interval of confidence.

    Args:
        value: the number.
        low: where the interval begins.
        high: where it ends.
    """

    value: float
    low: float
    high: float


def _average(values: np.ndarray) -> float:
    return float(values.mean())


def _estimate(value: float, resampled: Sequence[float], comparisons: int) -> Estimate:
    outside = 0.05 / comparisons
    low, high = np.quantile(resampled, (outside / 2, 1 - outside / 2))
    return Estimate(float(value), float(low), float(high))


def bootstrap(
    values: Float[np.ndarray, "units ..."], statistic: Statistic = _average, comparisons: int = 1
) -> Estimate:
    """Return a number with its percentile interval of `1 − 0.05 / comparisons`: units drawn again, with replacement.

    The draws are the same for every sample of as many units, so that differences of paired numbers are paired.

    Args:
        values: what was measured of each unit (a text, a prompt, a seed), `[units, ...]`.
        statistic: the number of all units; the mean if absent.
        comparisons: how many intervals a table holds of which none shall miss its number with 95 % confidence, by
            Bonferroni's correction.

    Example:
        >>> bootstrap(np.array([1.0, 1.0, 1.0]))
        Estimate(value=1.0, low=1.0, high=1.0)

    Source: Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, Section 13.3.
    """
    drawn = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    return _estimate(statistic(values), [statistic(values[rows]) for rows in drawn], comparisons)


def bootstrap_of_groups(
    groups: Sequence[np.ndarray], statistic: Statistic = _average, comparisons: int = 1
) -> Estimate:
    """Return the mean of a number over groups, groups and the units of each group drawn again, with replacement.

    Args:
        groups: what was measured of each unit of each group (prompts of tasks), `[units, ...]` each.
        statistic: the number of a group's units; the mean if absent.
        comparisons: as for `bootstrap`.

    Example:
        >>> bootstrap_of_groups([np.array([1.0, 1.0]), np.array([1.0, 1.0, 1.0])])
        Estimate(value=1.0, low=1.0, high=1.0)

    Source: Davison & Hinkley, "Bootstrap Methods and their Application", 1997, Section 3.8.
    """
    draw = np.random.default_rng(0)

    def resampled() -> float:
        chosen = [groups[i] for i in draw.integers(0, len(groups), len(groups))]
        return float(np.mean([statistic(group[draw.integers(0, len(group), len(group))]) for group in chosen]))

    value = float(np.mean([statistic(group) for group in groups]))
    return _estimate(value, [resampled() for _ in range(RESAMPLES)], comparisons)
