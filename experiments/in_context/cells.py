"""The ratio of two means, in per cent, as tables show it."""

from collections.abc import Sequence

import numpy as np

from duat_jax.evaluation.statistics import bootstrap


def ratio(parts: Sequence[float], wholes: Sequence[float]) -> str:
    """Format the ratio of two means in per cent, with an interval if there are several units."""
    columns = np.stack([parts, wholes], -1).astype(np.float64)
    if len(columns) < 2:
        return f"{100 * columns[0, 0] / columns[0, 1]:.1f} %"
    return f"{bootstrap(columns, lambda means: 100 * means[..., 0] / means[..., 1]).written(1)} %"
