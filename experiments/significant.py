"""Numbers as studies keep them: with so many significant digits."""

from typing import Any

import jax
import numpy as np


def significant(tree: Any, digits: int = 6) -> Any:
    """Return numbers with so many significant digits, as plain data.

    Example:
        >>> significant({"a": np.array([1.23456789, 1e-9])}, 3)
        {'a': [1.23, 1e-09]}
    """

    def of_number(number: float) -> float:
        return float(f"{number:.{digits - 1}e}")

    return jax.tree.map(lambda leaf: np.vectorize(of_number, otypes=[float])(leaf).tolist(), tree)
