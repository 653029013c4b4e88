"""Gauss–Legendre quadrature between 0 and 1, exact to rounding for polynomials of any degree."""

from functools import cache
from typing import NamedTuple

import numpy as np


class Nodes(NamedTuple):
    """The points `t` of a quadrature.

    Args:
        of_first: `t`.
        of_second: `1 − t`, as exact as `t` near both ends.
        weights: their weights, which sum to one.
    """

    of_first: np.ndarray
    of_second: np.ndarray
    weights: np.ndarray


@cache
def gauss_legendre(points: int) -> Nodes:
    """Return the nodes that integrate polynomials of degrees below `2 · points` exactly."""
    # They are the zeros of a Legendre polynomial by Newton's method in the distance `s` from the end of the interval,
    # by the recursion of the differences of neighbouring polynomials, in NumPy's longest numbers. So `s` is right to
    # rounding of itself, as the values of a polynomial of a high degree near the ends need; NumPy's own nodes and
    # SciPy's are right to rounding of the interval's length.
    k = np.arange(1, (points + 1) // 2 + 1, dtype=np.longdouble)
    s = 2 * np.sin(np.pi * (4 * k - 1) / (8 * points + 4)) ** 2
    for _ in range(5):
        value, step = 1 - s, -s
        for degree in range(2, points + 1):
            step = ((degree - 1) * step - (2 * degree - 1) * s * value) / degree
            value = value + step
        slope = points * (s * value - step)
        s = s + value * s * (2 - s) / slope
    weights = s * (2 - s) / (points * (value - step)) ** 2
    far, near, mirrored = 1 - s / 2, s / 2, slice(points // 2)
    pairs = ((far, near), (near, far), (weights, weights))
    return Nodes(*(np.concatenate([first, second[mirrored]]).astype(float) for first, second in pairs))
