"""Random estimates for a linear map, each with its standard error."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from duat_jax.errors import DuatError
from duat_jax.operators.entries import at_once, require_square, summed
from duat_jax.operators.linear_map import LinearMap, require_array


class Estimate(NamedTuple):
    """A mean over random samples, with its standard error.

    Args:
        value: the estimate.
        standard_error: its standard error, in the same shape: about two thirds of estimates lie within one standard
            error of the truth, and nearly all within three.
    """

    value: Float[Array, "..."]
    standard_error: Float[Array, "..."]


def estimated_diagonal(linear: LinearMap, samples: int, *, key: Key[Array, ""]) -> Estimate:
    """Estimate the diagonal of a map: the mean of `z ⊙ A z` over random signs `z`.

    It takes as many applications as samples, and memory for a diagonal of each.

    Args:
        linear: a map whose output has its input's shape.
        samples: number of samples, at least 2.
        key: key of the random signs.

    Raises:
        DuatError: if input and output differ, or there are too few samples.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax.operators.kronecker import Kronecker
        >>> estimated_diagonal(Kronecker(jnp.diag(jnp.array([1.0, 2.0])), jnp.eye(1)), 4, key=jax.random.key(0))
        Estimate(value=Array([[1.], [2.]], dtype=float32), standard_error=Array([[0.], [0.]], dtype=float32))

    Source: Bekas, Kokiopoulou & Saad, "An estimator for the diagonal of a matrix", 2007.
    """
    require_square(linear)
    return _mean(_sampled(linear, _entries, _enough(samples), key))


def estimated_frobenius(linear: LinearMap, samples: int, *, key: Key[Array, ""]) -> Estimate:
    """Estimate the Frobenius norm of a map: the root of the mean of `‖A z‖²` over random signs `z`.

    It takes as many applications as samples.  The standard error is that of the mean, carried through the root.

    Args:
        linear: the map.
        samples: number of samples, at least 2.
        key: key of the random signs.

    Raises:
        DuatError: if there are too few samples, or the map is one between several streams.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax.operators.kronecker import Kronecker
        >>> estimate = estimated_frobenius(Kronecker(jnp.eye(2), 2 * jnp.eye(2)), 4, key=jax.random.key(0))
        >>> float(estimate.value), float(estimate.standard_error)
        (4.0, 0.0)

    Source: Hutchinson, "A stochastic estimator of the trace of the influence matrix", 1990.
    """
    require_array(linear)
    square = _mean(_sampled(linear, _square, _enough(samples), key))
    norm = jnp.sqrt(square.value)
    return Estimate(norm, square.standard_error / (2 * norm))


def _entries(z: Array, result: Array) -> Array:
    return z * result


def _square(z: Array, result: Array) -> Array:
    return (result.astype(summed(result.dtype)) ** 2).sum()


def _enough(samples: int) -> int:
    if samples < 2:
        raise DuatError(f"samples = {samples} gives no standard error: take at least 2")
    return samples


@partial(jax.jit, static_argnames=("statistic", "samples"))
def _sampled(linear: LinearMap, statistic: Callable[[Array, Array], Array], samples: int, key: Array) -> Array:
    def sample(key: Array) -> Array:
        z = jax.random.rademacher(key, linear.input.shape, linear.input.dtype)
        return statistic(z, linear(z))

    return jax.lax.map(sample, jax.random.split(key, samples), batch_size=at_once(linear))


@jax.jit
def _mean(samples: Array) -> Estimate:
    return Estimate(samples.mean(0), samples.std(0, ddof=1) / jnp.sqrt(jnp.asarray(len(samples), samples.dtype)))
