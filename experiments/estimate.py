"""Estimates over units: the mean with its 95 % interval, by the method that fits the number of units."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from scipy.stats import binom, binomtest

from duat_jax.evaluation.statistics import IntervalEstimate, bootstrap, students_mean

FEW = 20
"""Fewer units than these have an interval by Student's t: a bootstrap of them is too narrow."""


class Method(StrEnum):
    """The method of an interval."""

    EXACT = "Clopper and Pearson"
    STUDENT = "Student's t"
    BOOTSTRAP = "bootstrap"
    ORDER = "order statistics"
    NONE = "no interval"


class Estimate(NamedTuple):
    """A mean over units with its 95 % interval.

    Args:
        value: the mean.
        low: the lower end of the interval.
        high: the upper end of the interval.
        n: the number of units.
        method: the method of the interval.
    """

    value: float
    low: float
    high: float
    n: int
    method: Method

    def written(self, digits: int = 3, sign: str = "") -> str:
        """Format the estimate as on every page: `0.50 [0.41, 0.62]`."""
        return IntervalEstimate(self.value, self.low, self.high).written(digits, sign)

    def scaled(self, factor: float) -> "Estimate":
        """Return the estimate in another unit."""
        return self._replace(value=factor * self.value, low=factor * self.low, high=factor * self.high)


def estimate(values: Sequence[float] | np.ndarray, comparisons: int = 1) -> Estimate:
    """Return the mean over units, or the share of units for which something holds, with its interval.

    Args:
        values: one number of each unit, or one truth value.
        comparisons: how many intervals hold together.

    Example:
        >>> estimate([1.0, 2.0, 3.0]).written(2), estimate([1.0, 2.0, 3.0]).method.value
        ('2.00 [-0.48, 4.48]', "Student's t")
        >>> estimate([True, False, False, False]).written(2)
        '0.25 [0.01, 0.81]'
    """
    numbers = np.asarray(values)
    if not numbers.size:
        raise ValueError("an estimate needs at least one unit")
    if numbers.dtype == bool:
        found = binomtest(int(numbers.sum()), len(numbers))
        low, high = map(float, found.proportion_ci(method="exact"))
        return Estimate(float(found.statistic), low, high, len(numbers), Method.EXACT)
    numbers = numbers.astype(float)
    if len(numbers) == 1 or np.ptp(numbers) == 0:
        return Estimate(*3 * (float(numbers.mean()),), len(numbers), Method.NONE)
    few = len(numbers) < FEW
    interval = students_mean(numbers, comparisons) if few else bootstrap(numbers, comparisons=comparisons)
    return Estimate(*interval, len(numbers), Method.STUDENT if few else Method.BOOTSTRAP)


def median(values: Sequence[float] | np.ndarray) -> Estimate:
    """Return the median over units, for numbers of which a few are far larger, with its interval by order statistics.

    Example:
        >>> median([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 1000.0]).written(1)
        '4.5 [1.0, 1000.0]'
    """
    numbers = np.sort(np.asarray(values, float))
    rank = int(binom.ppf(0.025, len(numbers), 0.5)) or 1
    low, high = float(numbers[rank - 1]), float(numbers[-rank])
    return Estimate(float(np.median(numbers)), low, high, len(numbers), Method.NONE if low == high else Method.ORDER)


def share(values: Sequence[float] | np.ndarray) -> Estimate:
    """Return the mean over units of a share, whose interval doesn't leave 0 to 1.

    Example:
        >>> share([0.9, 1.0, 1.0]).written(2)
        '0.97 [0.82, 1.00]'
    """
    found = estimate(values)
    return found._replace(low=max(found.low, 0.0), high=min(found.high, 1.0))


def ratio(
    parts: Sequence[float] | np.ndarray, wholes: Sequence[float] | np.ndarray, *, of_sizes: bool = False
) -> Estimate:
    """Return the ratio of two means over units, with the interval of its first-order expansion.

    Args:
        parts: the numerator, one number of each unit.
        wholes: the denominator.
        of_sizes: whether neither can be negative: then the logarithm of the ratio is expanded, so that its interval
            doesn't reach below zero.

    Example:
        >>> ratio([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]).value
        0.5
        >>> ratio([0.0, 1.0, 2.0], [1.0, 1.0, 1.0], of_sizes=True).written(1)
        '1.0 [0.1, 12.0]'
    """
    part, whole = np.asarray(parts, float), np.asarray(wholes, float)
    value = float(part.mean() / whole.mean())
    off = estimate((part - value * whole) / whole.mean())
    if of_sizes and value > 0:
        times = np.exp(np.array([off.low, off.high]) / value)
        return off._replace(value=value, low=value * float(times[0]), high=value * float(times[1]))
    return off._replace(value=value, low=value + off.low, high=value + off.high)
