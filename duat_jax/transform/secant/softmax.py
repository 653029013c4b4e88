"""The rule for a softmax, a log-softmax or a logsumexp: logarithmic means of its probabilities."""

from functools import reduce
from math import factorial
from typing import Any

import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array

from duat_jax.transform.parameters import cumulation_of
from duat_jax.transform.secant import elementwise_secants as secants
from duat_jax.transform.secant.changed_value import ChangedValue, part_of
from duat_jax.transform.secant.normalisers import LOG_SOFTMAX, LOGSUMEXP, Normaliser, SumMask


def normalised(
    normaliser: Normaliser, scores: ChangedValue, mask: ChangedValue | None, result: ChangedValue, jump: Any
) -> Array:
    """Return the change of a softmax, log-softmax or logsumexp, by the logarithmic means of its probabilities."""
    # With the means `L = ΔP / Δlog P`, `Δℓ = Σ L Δa / Σ L` for the logsumexp `ℓ` of scores `a`, and `ΔP = L (Δa − Δℓ)`.
    # Scores that are masked out at one input only have no change; their effect is a jump. Everything is computed in
    # single precision at least.
    shape, dtype = result.both[0].shape, result.both[0].dtype
    a = secants.widened(scores.value)
    counts, factors = _counts(normaliser.mask, mask, a)
    axes = tuple(axis + 1 for axis in normaliser.axes)
    # Differences are taken first: a logarithm would be lost in the rounding of large numbers.
    largest = jnp.where(counts, a, -jnp.inf).max(axes, keepdims=True, initial=jnp.array(-jnp.inf, a.dtype))
    below = a - largest
    exponentials = jnp.exp(below)
    total = (factors * jnp.where(counts, exponentials, 0)).sum(axes, keepdims=True)
    logs, probabilities = below - jnp.log(jnp.abs(total)), exponentials / jnp.abs(total)
    change = scores.change.astype(a.dtype)

    def change_of(means: Array) -> Array:
        """Return the change of scores, of a log-softmax relative to the score that has most of the weight."""
        # Its own `1 − L / Σ L` would be lost in rounding, and the logarithm of a probability near 1 is as small. The
        # probability itself is rounded by more than that, and a softmax does without.
        if normaliser.kind != LOG_SOFTMAX or not isinstance(factors, int):
            return change
        most = means > means.sum(normaliser.axes, keepdims=True) / 2
        return jnp.where(most, 0, change - jnp.where(most, change, 0).sum(normaliser.axes, keepdims=True))

    def carried(logs: Array, probabilities: Array) -> tuple[Array, Array]:
        # A row that is masked out altogether at one input has its largest score far away.
        masked = _is_unbounded(logs[0] - logs[1]) | _is_unbounded(largest[0] - largest[1])
        distance = jnp.abs(jnp.where(masked, 0, logs[0] - logs[1]))
        means = jnp.where(masked, 0, _logarithmic_means(distance, probabilities))
        if jump is None:
            return means, means * change_of(means)
        moved = probabilities[0] - probabilities[1]
        return means, means * change_of(means) + part_of(jump, jnp.where(masked, jnp.nan_to_num(moved), 0))

    counted = jnp.where(counts, logs, -jnp.inf), jnp.where(counts, probabilities, 0)
    means, parts = (factors * array for array in carried(*counted))
    weight = means.sum(normaliser.axes, keepdims=True)
    shift = parts.sum(normaliser.axes, keepdims=True) / jnp.where(weight == 0, 1, weight)
    if normaliser.kind == LOGSUMEXP:
        return shift.reshape(shape).astype(dtype)
    if normaliser.kind == LOG_SOFTMAX:
        return (change_of(means) - shift).astype(dtype)
    if mask is not None and not normaliser.masked:
        means, parts = carried(logs, probabilities)
    return (parts - means * shift).astype(dtype)


def _logarithmic_means(distance: Array, values: Array) -> Array:
    """Return `(p − q) / log(p / q)` of positive numbers `p` and `q`, from the distance of their logarithms."""
    larger, smaller = jnp.maximum(*values), jnp.minimum(*values)
    near = distance < 1 / 2
    # Of near ones `p (1 − exp(−t)) / t` by its series: another exponential of every score would take longer.
    terms = 15 if jnp.finfo(distance.dtype).bits > 32 else 9
    series = [(-1) ** k / factorial(k + 1) for k in reversed(range(terms))]
    t = jnp.where(near, distance, 0)
    # Written out: a loop, as in `jnp.polyval`, can't be batched over an explicitly sharded axis.
    decay = reduce(lambda total, term: total * t + term, series, jnp.zeros_like(t))
    return jnp.where(near, larger * decay, (larger - smaller) / jnp.where(near, 1, distance))


def cumulated_logsumexp(
    equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any
) -> list[Array]:
    """Return the change of a cumulative logsumexp: that of each masked row."""
    (scores,), (result,) = operands, results
    axis, reverse = cumulation_of(equation)
    values, change = jnp.moveaxis(scores.value, axis + 1, -1), jnp.moveaxis(scores.change, axis, -1)
    count = change.shape[-1]
    counted = jnp.tri(count, dtype=bool).T if reverse else jnp.tri(count, dtype=bool)
    rows = ChangedValue(
        jnp.where(counted, values[..., None, :], -jnp.inf), True, jnp.where(counted, change[..., None, :], 0)
    )
    logs = ChangedValue(jnp.moveaxis(result.value, axis + 1, -1), True)
    variable: Any = equation.invars[0]
    normaliser = Normaliser(LOGSUMEXP, variable, (change.ndim,), None)
    return [jnp.moveaxis(normalised(normaliser, rows, None, logs, None), -1, axis)]


def _counts(mask: SumMask | None, values: ChangedValue | None, scores: Array) -> tuple[Any, Any]:
    """Return which scores are counted at each input, and how often."""
    if mask is None or values is None:
        return True, 1
    if mask.counted is None:
        factors = jnp.broadcast_to(values.value, scores.shape[1:]).astype(scores.dtype)
        return factors != 0, factors
    return jnp.stack([jnp.broadcast_to(value, scores.shape[1:]) for value in values.both]) == mask.counted, 1


def _is_unbounded(x: Array) -> Array:
    """Return which numbers are infinite, NaN, or near the largest of their dtype."""
    # The limit is at least that of float32: no finite number of float16 is unbounded.
    largest = max(float(jnp.finfo(dtype).max) for dtype in (x.dtype, jnp.float32))
    return ~(jnp.abs(x) < largest**0.75)
