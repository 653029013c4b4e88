"""Faithfulness curves of circuits over their size, and summary statistics of the curves."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

FRACTIONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""The evaluated sizes of circuits, as fractions of all units."""


class Curve(NamedTuple):
    """Logit difference between right and wrong answer for each prompt, with parts of the model corrupted.

    Args:
        clean: on the clean text, nothing corrupted, `[prompts]`.
        corrupted: on the corrupted text, `[prompts]`.
        kept: with all units corrupted except those of the circuit, for each of `FRACTIONS`, `[prompts, fractions]`.
        removed: with only the units of the circuit corrupted, `[prompts, fractions]`.
    """

    clean: Float[np.ndarray, "prompts"]
    corrupted: Float[np.ndarray, "prompts"]
    kept: Float[np.ndarray, "prompts fractions"]
    removed: Float[np.ndarray, "prompts fractions"]


def faithfulness(curve: Curve, run: Float[np.ndarray, "*prompts fractions"]) -> Float[np.ndarray, "*any fractions"]:
    """Return the faithfulness of other runs: their share of the difference between clean and corrupted."""
    # `f(k) = (m(k) − m_corrupted) / (m_clean − m_corrupted)`, each the mean over prompts.
    return _share(curve.clean.mean(), curve.corrupted.mean(), run.mean(0))


def _share(clean: Any, corrupted: Any, run: np.ndarray) -> np.ndarray:
    """Return `f(k)` from means over prompts, `[..., fractions]`."""
    return (run - np.expand_dims(corrupted, -1)) / np.expand_dims(clean - corrupted, -1)


def _mean_over_sizes(f: np.ndarray) -> Any:
    """Return the mean of `f` over the logarithm of the circuit's size."""
    sizes = np.log(FRACTIONS)
    return np.trapezoid(f, sizes) / (sizes[-1] - sizes[0])


def _area(f: np.ndarray, of_all: float) -> Any:
    whole = np.full((*f.shape[:-1], 1), of_all)
    return np.trapezoid(np.concatenate([f, whole], -1), [*FRACTIONS, 1.0])


STATISTICS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "logf": lambda kept, removed: _mean_over_sizes(kept),
    "CPR": lambda kept, removed: _area(kept, 1.0),
    "CMD": lambda kept, removed: _area(np.abs(1 - kept), 0.0),
    "removed": lambda kept, removed: _mean_over_sizes(removed),
}
"""Statistics of a curve, from `f` with the circuit kept and with it removed, `[..., fractions]`: the mean of
`f` over log k; the areas under `f` (CPR, circuit performance ratio) and under `|1 − f|` (CMD, circuit–model distance),
up to the whole model; the mean over log k with the circuit removed, where lower is better."""


def columns(curve: Curve) -> Float[np.ndarray, "prompts columns"]:
    """Return all measurements of each prompt in one row, for means over prompts."""
    return np.concatenate([curve.clean[:, None], curve.corrupted[:, None], curve.kept, curve.removed], 1)


def number(name: str, means: Float[np.ndarray, "*any columns"]) -> Any:
    """Return a statistic of a curve from the means over its prompts."""
    clean, corrupted, runs = means[..., 0], means[..., 1], means[..., 2:]
    return STATISTICS[name](*np.split(_share(clean, corrupted, runs), 2, -1))
