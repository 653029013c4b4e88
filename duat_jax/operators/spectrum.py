"""The leading singular triplets of a linear map, without its matrix, with error bounds."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key
from matfree.decomp import bidiag
from matfree.eig import svd_partial

from duat_jax.errors import DuatError
from duat_jax.operators.linear_map import LinearMap, require_array
from duat_jax.operators.shapes import describe


class SingularTriplets(NamedTuple):
    """Leading singular triplets, `A v = σ u` and `Aᵀ u = σ v`, in decreasing order of `σ`.

    A triplet's sign is arbitrary: `−u, −v` is the same one.

    Args:
        left: the unit vectors `u` on the output, `[count, *output]`.
        values: the singular values `σ`, `[count]`.
        right: the unit vectors `v` on the input, `[count, *input]`.
        errors: `√((‖A v − σ u‖² + ‖Aᵀ u − σ v‖²) / (2 ‖u‖ ‖v‖))`, measured with the map itself, `[count]`: a singular
            value lies within this distance of `σ`, up to rounding.  NaN where there was no further triplet.
    """

    left: Float[Array, "count ..."]
    values: Float[Array, "count"]
    right: Float[Array, "count ..."]
    errors: Float[Array, "count"]


def singular_triplets(
    linear: LinearMap, count: int, *, key: Key[Array, ""], iterations: int | None = None
) -> SingularTriplets:
    """Compute the leading singular triplets of a map by Golub and Kahan's iteration.

    Every iteration applies the map and its transpose once, and so does each triplet's error at the end; all vectors are
    kept orthogonal.  The leading values converge first, and the faster the larger the gaps between them:
    `errors` bounds the distance of each.  Equal singular values are found once.

    Args:
        linear: a map between arrays of real numbers.
        count: number of triplets.
        key: key of the random initial vector, on the smaller of input and output.
        iterations: number of iterations, at most the size of the smaller of input and output; if absent, eight and two
            for each triplet, up to that size.

    Returns:
        The triplets, in JAX's default precision.

    Raises:
        DuatError: if the map isn't real, is one between several streams, or has fewer triplets, or there are too few or
            too many iterations.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax.operators.kronecker import Kronecker
        >>> stretch = Kronecker(jnp.diag(jnp.array([1.0, 5.0, 2.0])), jnp.eye(1))
        >>> triplets = singular_triplets(stretch, 2, key=jax.random.key(0))
        >>> triplets.values.round(3).tolist(), abs(triplets.right[0, :, 0]).round(3).tolist()
        ([5.0, 2.0], [0.0, 1.0, 0.0])

    Source: Golub & Kahan, "Calculating the singular values and pseudo-inverse of a matrix", 1965.
    """
    require_array(linear)
    most = min(math.prod(linear.input.shape), math.prod(linear.output.shape))
    iterations = min(8 + 2 * count, most) if iterations is None else iterations
    problems = [
        f"{describe(array)} isn't real: singular triplets are computed for real maps only"
        for array in (linear.input, linear.output)
        if not jnp.issubdtype(array.dtype, jnp.floating)
    ]
    if not 1 <= count <= most:
        problems.append(f"count = {count} must lie between 1 and {most}, the smaller size of input and output")
    elif not count <= iterations <= most:
        problems.append(f"iterations = {iterations} must lie between count = {count} and {most}, the smaller size")
    if problems:
        raise DuatError("; ".join(problems))
    return _triplets(linear, count, iterations, key)


@jax.custom_vjp
def _apply(linear: LinearMap, v: Array) -> Array:
    # The iteration runs in the default precision, independently of the map's.
    return linear(v.astype(linear.input.dtype)).astype(v.dtype)


def _transpose(linear: LinearMap, u: Array) -> tuple[None, Array]:
    return None, _apply(linear.T, u)


# Without this rule the program would be linearised anew for its transpose, which the map has already.
_apply.defvjp(lambda linear, v: (_apply(linear, v), linear), _transpose)


def _finite_bidiag(iterations: int) -> Any:
    """Return a bidiagonalisation in which vectors beyond the last are zero."""

    def run(*arguments: Any) -> Any:
        return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), bidiag(iterations)(*arguments))

    return run


@partial(jax.jit, static_argnames=("count", "iterations"))
def _triplets(linear: LinearMap, count: int, iterations: int, key: Array) -> SingularTriplets:
    def error(u: Array, value: Array, v: Array) -> Array:
        difference = jnp.hypot(norm(_apply(linear, v) - value * u), norm(_apply(linear.T, u) - value * v))
        return difference / jnp.sqrt(2 * norm(u) * norm(v))

    def norm(x: Array) -> Array:
        return jnp.linalg.norm(x.reshape(-1))

    # In the smaller of both spaces, as many steps as dimensions find all triplets.
    turned = math.prod(linear.output.shape) < math.prod(linear.input.shape)
    begun = linear.T if turned else linear
    start = jax.random.normal(key, begun.input.shape)
    # Some accelerators round products, and vectors wouldn't stay orthogonal.
    with jax.default_matmul_precision("highest"):
        triplets = svd_partial(_finite_bidiag(iterations))(partial(_apply, begun), start)
    left, values, right = (part[:count] for part in triplets)
    if turned:
        left, right = right, left
    return SingularTriplets(left, values, right, jax.vmap(error)(left, values, right))
