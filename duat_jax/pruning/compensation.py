"""What is put in the place of what is removed: nothing, its mean, or the rest refitted by least squares."""

import numpy as np
from jaxtyping import Bool, Float

from duat_jax.pruning.calibration import Moments

COMPENSATIONS = ("none", "mean", "refit")

RIDGE = 1e-6
"""What is added to the covariance's diagonal, as a share of its mean: in float32 less than that is rounding."""

FEW, STRONG = 4, 0.1
"""Of fewer tokens than so many for each neuron the covariance is a poor estimate, and so much is added to it."""


def refitted(
    covariance: Float[np.ndarray, "kept kept"], with_target: Float[np.ndarray, "kept outputs"], tokens: int
) -> Float[np.ndarray, "kept outputs"]:
    """Return the weights with which activations come closest to a target, in squares about their means: `C⁻¹ C_y`.

    Args:
        covariance: `C`, of the activations.
        with_target: `C_y`, of activations and target.
        tokens: of how many tokens both are means.
    """
    diagonal = np.diag(covariance)
    # Neurons that never move have no covariance with anything: they stay as they are.
    ridge = (STRONG if tokens < FEW * len(diagonal) else RIDGE) * diagonal.mean() or 1.0
    return np.linalg.solve(covariance + ridge * np.eye(len(diagonal)), with_target)


def compensated(
    outer: Float[np.ndarray, "neurons features"],
    kept: Bool[np.ndarray, "neurons"],
    moments: Moments,
    compensation: str,
) -> tuple[Float[np.ndarray, "neurons features"], Float[np.ndarray, "features"]]:
    """Return the outer weights, zero where a neuron is removed, and what is added to the bias.

    With `K` kept and `R` removed, `m = E a` and `C` the covariance of the activations: the mean adds `m_R W_R` to the
    bias.  The refit adds `X = C_KK⁻¹ C_KR W_R` to `W_K`, and `m_R W_R − m_K X` to the bias: of all outer weights and
    biases those that come closest, in squares over calibration text, to what all neurons wrote.

    Args:
        outer: `W`, `[neurons, features]`.
        kept: which neurons stay.
        moments: of the neurons.
        compensation: a name in `COMPENSATIONS`.

    Example:
        >>> products = np.array([[2.0, 4.0], [4.0, 8.0]])
        >>> moments = Moments(np.array([1.0, 2.0]), products, np.zeros(2), np.zeros((3, 2)), tokens=9)
        >>> weights, bias = compensated(np.ones((2, 1)), np.array([True, False]), moments, "refit")
        >>> weights.round(3).tolist(), abs(bias).round(3).tolist()
        ([[3.0], [0.0]], [0.0])
    """
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
