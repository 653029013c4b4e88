"""How well a circuit stands for its model: the curve over its size, numbers made of it, and their errors."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

FRACTIONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""The sizes at which a circuit is tried: which fraction of all units is in it."""


class Curve(NamedTuple):
    """What a model says of each prompt, by how much it prefers the right answer, while part of it is corrupted.

    Args:
        clean: nothing is, `[prompts]`.
        corrupted: it reads the corrupted text, `[prompts]`.
        kept: all units are but those of the circuit, for each of `FRACTIONS`, `[prompts, fractions]`.
        removed: the units of the circuit are and no others, `[prompts, fractions]`.
    """

    clean: Float[np.ndarray, "prompts"]
    corrupted: Float[np.ndarray, "prompts"]
    kept: Float[np.ndarray, "prompts fractions"]
    removed: Float[np.ndarray, "prompts fractions"]


def faithfulness(curve: Curve, run: Float[np.ndarray, "prompts fractions"]) -> Float[np.ndarray, "fractions"]:
    """Return how much of the difference between clean and corrupted there is in other runs.

    `f(k) = (m(k) − m_corrupted) / (m_clean − m_corrupted)`, each the mean over prompts.

    Args:
        curve: what it is measured by.
        run: what the model says in the other runs, such as `curve.kept`, `[prompts, fractions]`.

    Source: Mueller et al., "MIB: A Mechanistic Interpretability Benchmark", 2025, circuit localization track.
    """
    corrupted = curve.corrupted.mean()
    return (run.mean(0) - corrupted) / (curve.clean.mean() - corrupted)


def _mean_over_sizes(f: np.ndarray) -> float:
    """Return the mean of `f` over the logarithm of the circuit's size."""
    sizes = np.log(FRACTIONS)
    return float(np.trapezoid(f, sizes) / (sizes[-1] - sizes[0]))


def _area(f: np.ndarray, of_all: float) -> float:
    return float(np.trapezoid([*f, of_all], [*FRACTIONS, 1.0]))


STATISTICS: dict[str, Callable[[Curve], float]] = {
    "logf": lambda curve: _mean_over_sizes(faithfulness(curve, curve.kept)),
    "CPR": lambda curve: _area(faithfulness(curve, curve.kept), 1.0),
    "CMD": lambda curve: _area(np.abs(1 - faithfulness(curve, curve.kept)), 0.0),
    "removed": lambda curve: _mean_over_sizes(faithfulness(curve, curve.removed)),
}
"""One number of each curve: the mean of `f` over log k; the areas under `f` (CPR, circuit performance ratio) and under
`|1 − f|` (CMD, circuit–model distance), up to the whole model; the mean over log k where the circuit is removed, which
is the better the lower."""


class Measured(NamedTuple):
    """A number measured on samples.

    Args:
        value: the number.
        standard_error: its standard error.

    Example:
        >>> Measured(0.0, 0.5).interval
        (-0.98, 0.98)
    """

    value: float
    standard_error: float

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of 95 % confidence, the number taken as normal."""
        return self.value - 1.96 * self.standard_error, self.value + 1.96 * self.standard_error


def jackknife(statistic: Callable[[Any], float], samples: Any) -> Measured:
    """Return a statistic with its standard error: `error² = (n − 1)/n Σ_i (θ_i − mean θ)²`, `θ_i` without sample i.

    Args:
        statistic: any function of the samples that gives one number.
        samples: a pytree of arrays with a leading axis of at least two samples, `[samples, ...]`; what is paired stays
            so.

    Example:
        >>> import numpy as np
        >>> value, error = jackknife(np.mean, np.array([1.0, 2.0, 3.0, 6.0]))
        >>> float(value), round(error, 3), round(float(np.std([1, 2, 3, 6], ddof=1) / 2), 3)
        (3.0, 1.08, 1.08)

    Source: Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, Eq. 11.5.
    """
    count = len(jax.tree.leaves(samples)[0])
    without = np.array(
        [statistic(jax.tree.map(lambda leaf, i=i: np.delete(leaf, i, 0), samples)) for i in range(count)]
    )
    return Measured(float(statistic(samples)), float(np.sqrt((count - 1) * without.var())))


def mean(measured: Sequence[Measured]) -> Measured:
    """Return the mean of independent numbers, such as of several tasks.

    Args:
        measured: the numbers.
    """
    values, errors = np.array(measured).T
    return Measured(float(values.mean()), float(np.sqrt(np.square(errors).sum()) / len(measured)))
