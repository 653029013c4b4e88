"""Compensation for removed neurons: none, their mean, or a least-squares refit of the outer weights."""

import numpy as np
from jaxtyping import Bool, Float

from duat_jax.pruning.calibration import Moments

COMPENSATIONS = ("none", "mean", "refit")

RIDGE = 1e-6
"""Ridge added to the covariance's diagonal, as a fraction of its mean: in float32 anything smaller is rounding."""

FEW, STRONG = 4, 0.1
"""With fewer than `FEW` tokens per neuron the covariance is a poor estimate, and the ridge is `STRONG` instead."""


def refitted(
    covariance: Float[np.ndarray, "kept kept"], with_target: Float[np.ndarray, "kept outputs"], tokens: int
) -> Float[np.ndarray, "kept outputs"]:
    """Return the least-squares weights from centred activations to a centred target: `C⁻¹ C_y`."""
    diagonal = np.diag(covariance)
    # Where no activation varies, the mean of the diagonal is 0: a ridge of 1 keeps the system solvable.
    ridge = (STRONG if tokens < FEW * len(diagonal) else RIDGE) * diagonal.mean() or 1.0
    return np.linalg.solve(covariance + ridge * np.eye(len(diagonal)), with_target)


def compensated(
    outer: Float[np.ndarray, "neurons features"],
    kept: Bool[np.ndarray, "neurons"],
    moments: Moments,
    compensation: str,
) -> tuple[Float[np.ndarray, "neurons features"], Float[np.ndarray, "features"]]:
    """Return the compensated outer weights, zero for removed neurons, and the change of the bias.

    Example:
        >>> products = np.array([[2.0, 4.0], [4.0, 8.0]])
        >>> moments = Moments(np.array([1.0, 2.0]), products, np.zeros(2), np.zeros((3, 2)), tokens=9)
        >>> weights, bias = compensated(np.ones((2, 1)), np.array([True, False]), moments, "refit")
        >>> weights.round(3).tolist(), abs(bias).round(3).tolist()
        ([[3.0], [0.0]], [0.0])
    """
    # With `K` kept and `R` removed, `m = E a` and `C` the covariance of the activations: `"mean"` adds `m_R W_R` to the
    # bias. `"refit"` adds `X = C_KK⁻¹ C_KR W_R` to `W_K`, and `m_R W_R − m_K X` to the bias: the outer weights and bias
    # closest, by least squares over calibration text, to the output of all neurons.
    left, removed = outer * kept[:, None], outer[~kept]
    if compensation == "none" or kept.all():
        return left, np.zeros(outer.shape[1])
    added = moments.mean[~kept] @ removed
    if compensation == "refit":
        covariance = moments.covariance
        carried = refitted(covariance[np.ix_(kept, kept)], covariance[np.ix_(kept, ~kept)] @ removed, moments.tokens)
        left[kept] += carried
        added -= moments.mean[kept] @ carried
    return left, added
