"""The largest difference by rounding between two exact routes to the same numbers."""

from typing import Any

import numpy as np


def rounding_bound(dtype: Any, layers: int, size: Any) -> Any:
    """Return the rounding bound of an array that two routes compute, `8 · eps · (layers + 2) · size`.

    Example:
        >>> rounding_bound(np.float32, layers=2, size=1.0) == 8 * 2**-23 * 4
        True
    """
    return 8 * float(np.finfo(dtype).eps) * (layers + 2) * size
