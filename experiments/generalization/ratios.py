"""Ratios of errors and of parameters by seed, of which some are known by bounds alone, and the verdicts on them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.estimate import Estimate, Method, estimate
from experiments.verdict import Verdict, decide

TARGET, FLOOR = 0.05, 0.02
"""The error that networks shall reach, and the one below which errors count as equal."""
CONFIRMED, REFUTED = 2.0, 1.2
"""The ratios from which on a prediction is confirmed, and below which it is refuted."""


def floored(errors: Any) -> np.ndarray:
    """Return errors, at least `FLOOR`."""
    return np.maximum(np.asarray(errors, float), FLOOR)


def geometric(logs: Float[np.ndarray, "seeds"]) -> Estimate:
    """Return the ratio whose logarithms over seeds are given, with its interval.

    Example:
        >>> geometric(np.log([1.0, 2.0, 4.0])).value
        2.0
    """
    of = estimate(logs)
    return of._replace(value=float(np.exp(of.value)), low=float(np.exp(of.low)), high=float(np.exp(of.high)))


class Ratio(NamedTuple):
    """The logarithm of a rival's number over that of a network whose mixing moves, of every seed.

    Args:
        name: what is compared.
        low: a lower bound of every seed, `[seeds]`.
        high: an upper bound of every seed; the same numbers where they are known.
    """

    name: str
    low: Float[np.ndarray, "seeds"]
    high: Float[np.ndarray, "seeds"]

    @property
    def bounded(self) -> bool:
        """Whether both bounds of every seed are numbers."""
        return bool(np.isfinite([self.low, self.high]).all())

    def estimate(self) -> Estimate:
        """Return the ratio, of which the lower bound is known, with its interval."""
        low, high = (
            geometric(bound)
            if np.isfinite(bound).all()
            else Estimate(*3 * (float(np.exp(bound.sum())),), len(bound), Method.STUDENT)
            for bound in (self.low, self.high)
        )
        return low._replace(high=high.high)


def known(name: str, logs: Float[np.ndarray, "seeds"]) -> Ratio:
    """Return the case of a ratio that is known."""
    return Ratio(name, logs, logs)


def of_errors(name: str, rival: Any, mover: Any) -> Ratio:
    """Return the case of two errors, which are equal below the floor."""
    return known(name, np.log(floored(rival) / floored(mover)))


def needed(
    parameters: Float[np.ndarray, "sizes"], error: Float[np.ndarray, "sizes"], target: float = TARGET
) -> tuple[float, float]:
    """Return bounds of the number of parameters at which the error falls to a target.

    Example:
        >>> needed(np.array([10.0, 1000.0]), np.array([0.1, 0.2]), 0.05)
        (1000.0, inf)
    """
    # Between two sizes it is on a line in logarithms; it is only known to be below the smallest size, if that reaches
    # the target, or above the largest one, if none does.
    if not (error <= target).any():
        return float(parameters[-1]), float("inf")
    first = int(np.argmax(error <= target))
    if first == 0:
        return 0.0, float(parameters[0])
    (x0, x1), (y0, y1) = np.log(parameters[first - 1 : first + 1]), np.log(error[first - 1 : first + 1])
    number = float(np.exp(x0 + (np.log(target) - y0) / (y1 - y0) * (x1 - x0)))
    return number, number


def deciding(ratios: Sequence[Ratio], refuted: float = REFUTED) -> tuple[str, Estimate]:
    """Return the case that is worst for the prediction of large ratios, by its name."""
    # It is the smallest one that refutes it, or else the one with the smallest lower end.
    found = [(of.name, of.estimate()) for of in ratios]
    refuting = [case for case in found if case[1].high < refuted]
    return min(refuting or found, key=lambda case: case[1].high if refuting else case[1].low)


def large(ratio: Estimate, confirmed: float = CONFIRMED, refuted: float = REFUTED) -> Verdict:
    """Return whether a ratio is large, by the worst of several cases.

    Example:
        >>> large(geometric(np.log([2.2, 2.3, 2.4]))).value
        'confirmed'
    """
    return decide(ratio.low >= confirmed, ratio.high < refuted)
