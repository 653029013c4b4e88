"""Numbers as studies keep them: with so many significant digits."""

from typing import Any

import jax
import numpy as np


def significant(tree: Any, digits: int = 6) -> Any:
    """Return numbers with so many significant digits, as plain data; whole numbers and text stay as they are.

    Example:
        >>> significant({"a": np.array([1.23456789, 1e-9]), "seed": 1234567, "kind": "ViT"}, 3)
        {'a': [1.23, 1e-09], 'kind': 'ViT', 'seed': 1234567}
    """

    def of_leaf(leaf: Any) -> Any:
        values = np.asarray(leaf)
        if not np.issubdtype(values.dtype, np.floating):
            return values.tolist()
        return np.vectorize(lambda number: float(f"{number:.{digits - 1}e}"), otypes=[float])(values).tolist()

    return jax.tree.map(of_leaf, tree)
