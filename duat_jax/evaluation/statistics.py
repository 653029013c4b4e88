"""Estimates with confidence intervals by bootstrap or Student's t, and rank correlations."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

RESAMPLES = 2000

OfMeans = Callable[[Any], Any]
"""A statistic of the means over units, `[..., columns]` to `[...]`."""


class IntervalEstimate(NamedTuple):
    """An estimate from a sample, with its confidence interval.

    Args:
        value: the estimate.
        low: the lower end of the interval.
        high: the upper end of the interval.
    """

    value: float
    low: float
    high: float

    def written(self, digits: int = 3, sign: str = "") -> str:
        """Format the estimate with its interval, for tables and pages; an interval without width is left out.

        Args:
            digits: the number of digits after the decimal point.
            sign: `"+"` for a difference.

        Example:
            >>> IntervalEstimate(0.5, 0.41, 0.625).written(2, "+"), IntervalEstimate(1.0, 1.0, 1.0).written(1)
            ('+0.50 [+0.41, +0.62]', '1.0')
        """
        value, low, high = (f"{number:{sign}z.{digits}f}" for number in self)
        return value if low == value == high else f"{value} [{low}, {high}]"


def _means(draw: np.random.Generator, values: np.ndarray) -> np.ndarray:
    """Return the means over resampled units, `[resamples, columns]`."""
    units = len(values)
    counts = draw.multinomial(units, np.full(units, 1 / units), RESAMPLES)
    return np.tensordot(counts, values, 1) / units


def _mean(means: Any) -> Any:
    return means


def _estimate(value: Any, resampled: np.ndarray, comparisons: int) -> IntervalEstimate:
    outside = 0.05 / comparisons
    low, high = np.quantile(resampled, (outside / 2, 1 - outside / 2))
    return IntervalEstimate(float(value), float(low), float(high))


def students_mean(values: Float[np.ndarray, "units"], comparisons: int = 1) -> IntervalEstimate:
    """Return the mean over a few units with its 95 % interval by Student's t.

    Example:
        >>> students_mean(np.array([1.0, 2.0, 3.0])).written(2)
        '2.00 [-0.48, 4.48]'
    """
    from scipy.stats import t  # JAX brings it, but loads it only when it is needed

    half = float(t.ppf(1 - 0.025 / comparisons, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    mean = float(np.mean(values))
    return IntervalEstimate(mean, mean - half, mean + half)


def bootstrap(
    values: Float[np.ndarray, "units *columns"], of_means: OfMeans = _mean, comparisons: int = 1
) -> IntervalEstimate:
    """Return an estimate with its percentile bootstrap interval of `1 − 0.05 / comparisons`.

    Example:
        >>> bootstrap(np.array([1.0, 1.0, 1.0]))
        IntervalEstimate(value=1.0, low=1.0, high=1.0)
    """
    # Units are resampled with replacement; the draws are the same for every sample of the same size.
    return _estimate(of_means(values.mean(0)), of_means(_means(np.random.default_rng(0), values)), comparisons)


def bootstrap_of_groups(
    groups: Sequence[Float[np.ndarray, "_ *columns"]], of_means: OfMeans = _mean, comparisons: int = 1
) -> IntervalEstimate:
    """Return the mean of a statistic over groups, with an interval from resampling groups and the units of each group.

    Example:
        >>> bootstrap_of_groups([np.array([1.0, 1.0]), np.array([1.0, 1.0, 1.0])])
        IntervalEstimate(value=1.0, low=1.0, high=1.0)
    """
    draw, count = np.random.default_rng(0), len(groups)
    # Units are resampled anew each time that a group is drawn.
    numbers = np.array([[of_means(_means(draw, group)) for group in groups] for _ in groups])
    chosen = draw.integers(0, count, (count, 1, RESAMPLES))
    resampled = np.take_along_axis(numbers, chosen, 1).mean((0, 1))
    return _estimate(np.mean([of_means(group.mean(0)) for group in groups]), resampled, comparisons)


def agreement(scores: Float[np.ndarray, "tokens"], other_scores: Float[np.ndarray, "tokens"]) -> tuple[float, float]:
    """Return the rank correlations of two scores of tokens: Spearman's ρ and Kendall's τ; 0 if one is constant.

    Example:
        >>> agreement(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
        (0.5, 0.333...)

    Sources: Spearman, "The Proof and Measurement of Association between Two Things", 1904; Kendall, "A New Measure of
    Rank Correlation", 1938 (τ-b, for ties).
    """
    from scipy.stats import kendalltau, spearmanr

    if np.ptp(scores) == 0 or np.ptp(other_scores) == 0:
        return 0.0, 0.0
    return float(spearmanr(scores, other_scores).statistic), float(kendalltau(scores, other_scores).statistic)
