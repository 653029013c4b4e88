"""Arithmetic that rounds at random: how far rounding carries a value is seen in evaluations that round otherwise.

Each result of an operation is moved by up to one machine epsilon of a shorter dtype (Monte Carlo arithmetic: Parker,
1997).  Moved inputs alone don't show it: a sum of numbers without their mean is zero for all of them, and what is
computed for it is rounding.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

EXACT = frozenset((np.maximum, np.minimum, np.negative, np.absolute, np.floor, np.rint, np.sign))
"""Operations whose results aren't rounded."""
SUMS = frozenset((np.einsum, np.cumsum, np.cumprod))
"""Functions of NumPy that compute and aren't universal functions."""
EVALUATIONS = 8
"""The number of evaluations that round at random."""


class Rounded(np.ndarray):
    """Numbers whose operations round at random."""

    eps: float = 0.0
    chance: np.random.Generator

    def __array_finalize__(self, of: Any) -> None:
        """Take over what rounds."""
        if isinstance(of, Rounded) and of.eps:
            self.eps, self.chance = of.eps, of.chance

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, out: Any = None, **options: Any) -> Any:
        """Compute an operation, and round its result."""
        result = getattr(ufunc, method)(*map(_plain, operands), **options)
        rounded = result if ufunc in EXACT else self._moved(result)
        if out is None:
            return self._like(rounded)
        out[0][...] = rounded
        return out[0]

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """Call a function of NumPy, and round its result if no operation inside of it does."""
        result = super().__array_function__(function, types, arguments, options)
        return self._like(self._moved(_plain(result)) if function in SUMS else result)

    def _moved(self, result: Any) -> Any:
        if not isinstance(result, np.ndarray | np.floating) or result.dtype.kind != "f":
            return result
        return result * (1 + self.eps * self.chance.uniform(-1, 1, np.shape(result)))

    def _like(self, result: Any) -> Any:
        return rounding(result, self.eps, self.chance) if isinstance(result, np.ndarray) else result


def _plain(array: Any) -> Any:
    return array.view(np.ndarray) if isinstance(array, Rounded) else array


def rounding(array: np.ndarray, eps: float, chance: np.random.Generator) -> Rounded:
    """Return an array whose operations round at random.

    Args:
        array: the numbers.
        eps: the machine epsilon that they round to.
        chance: what decides.
    """
    found = array.view(Rounded)
    found.eps, found.chance = eps, chance
    return found


def carried(evaluate: Callable[[Callable[[Any], Rounded]], Any], exact: Any, eps: float, seed: int) -> np.ndarray:
    """Return how far rounding carries a value, in each evaluation.

    Args:
        evaluate: computes the value from arrays that a function makes round at random.
        exact: the value.
        eps: the machine epsilon that operations round to.
        seed: what decides.
    """
    chance = np.random.default_rng(seed)
    found = [evaluate(lambda array: rounding(array, eps, chance)) for _ in range(EVALUATIONS)]
    return np.abs(np.stack([_plain(each) for each in found]) - exact)
