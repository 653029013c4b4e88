"""Entries and norms of a linear map, computed exactly without its matrix, by applying it to unit vectors."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.operators.linear_map import LinearMap, require_array
from duat_jax.operators.shapes import describe, fits

NUMBERS = 2**22
"""The number of entries that are applied at once: enough to keep a processor busy, and few relative to a model."""


def require_square(linear: LinearMap) -> None:
    """Raise unless a map's output is an array of the shape and dtype of its input."""
    require_array(linear)
    if not fits(linear.input, linear.output):
        raise DuatError(
            f"a map from {describe(linear.input)} to {describe(linear.output)} has no diagonal: take one whose"
            " output is like its input"
        )


def diagonal(linear: LinearMap) -> Float[Array, "..."]:
    """Return the diagonal of a map, exactly: `A_kk = ⟨e_k, A e_k⟩`.

    It takes as many applications as the input has entries, many at once, with bounded memory.

    Args:
        linear: a map whose output has its input's shape.

    Returns:
        The diagonal, in the input's shape.

    Raises:
        DuatError: if input and output differ.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax.operators.kronecker import Kronecker
        >>> diagonal(Kronecker(jnp.array([[1.0, 9.0], [9.0, 2.0]]), jnp.diag(jnp.array([3.0, 5.0])))).tolist()
        [[3.0, 5.0], [6.0, 10.0]]
    """
    require_square(linear)
    return _diagonal(linear)


def token_norms(linear: LinearMap) -> Float[Array, "..."]:
    """Return the norm of the block of a map between each pair of tokens, exactly: `‖A_ij‖_F`, from `j` to `i`.

    It takes as many applications as the smaller of input and output has entries, many at once, with bounded memory: of
    a map from `[tokens, features]` to one token's `[features]`, as many transposed ones as there are features.

    Args:
        linear: a map between arrays whose last axis is features, and whose other axes are places.

    Returns:
        The norms, `[*output places, *input places]`: `[tokens, tokens]` of a map from `[tokens, features]` to the
        same, `[tokens]` of one to `[features]`.  In a causal model those from later to earlier tokens are zero.

    Raises:
        DuatError: if the map is one between several streams.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax.operators.kronecker import Kronecker
        >>> token_norms(Kronecker(jnp.array([[1.0, 0.0], [2.0, 3.0]]), jnp.array([[3.0, 4.0]]))).tolist()
        [[5.0, 0.0], [10.0, 15.0]]
    """
    require_array(linear)
    places = (*linear.output.shape[:-1], *linear.input.shape[:-1])
    if math.prod(linear.input.shape) <= math.prod(linear.output.shape):
        return jnp.sqrt(jnp.moveaxis(_squares(linear), 0, -1)).reshape(places)
    return jnp.sqrt(_squares(linear.T)).reshape(places)


def frobenius(linear: LinearMap) -> Float[Array, ""]:
    """Return the Frobenius norm of a map, exactly: `‖A‖_F = √(Σ A_kl²)`.

    It takes as many applications as `token_norms`, of which it is the norm.

    Args:
        linear: the map.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax.operators.kronecker import Kronecker
        >>> float(frobenius(Kronecker(jnp.ones((2, 2)), jnp.array([[3.0, 4.0]]))))
        10.0
    """
    return jnp.linalg.norm(token_norms(linear).reshape(-1))


def at_once(linear: LinearMap) -> int:
    """Return the number of arrays to which a map is applied at once."""
    return max(1, NUMBERS // max(math.prod(linear.input.shape), math.prod(linear.output.shape), 1))


def summed(dtype: Any) -> Any:
    """Return the dtype in which squares are summed: float32 at least."""
    return dtype if jnp.finfo(dtype).bits >= 32 else jnp.dtype(jnp.float32)


def _over_units(linear: LinearMap, total: Array, step: Callable[[Array, Array, Array], Array]) -> Array:
    """Fold `step(total, k, A e_k)` over batches of unit vectors `e_k` of the input."""
    size, dtype = math.prod(linear.input.shape), linear.input.dtype
    if not size:
        return total
    batches = -(-size // at_once(linear))
    # The last batch is padded with indices beyond the entries: their vectors are zero.
    entries = jnp.arange(batches * -(-size // batches)).reshape(batches, -1)

    def apply(total: Array, k: Array) -> tuple[Array, None]:
        units = jax.nn.one_hot(k, size, dtype=dtype).reshape(-1, *linear.input.shape)
        return step(total, k, jax.vmap(linear)(units)), None

    return jax.lax.scan(apply, total, entries)[0]


@jax.jit
def _diagonal(linear: LinearMap) -> Array:
    def pick(total: Array, k: Array, columns: Array) -> Array:
        entries = jnp.take_along_axis(columns.reshape(len(k), -1), k[:, None], axis=1, mode="clip")[:, 0]
        return total.at[k].set(entries, mode="drop")

    zeros = jnp.zeros(math.prod(linear.input.shape), linear.output.dtype)
    return _over_units(linear, zeros, pick).reshape(linear.input.shape)


@jax.jit
def _squares(linear: LinearMap) -> Array:
    """Return the sum of squares of every block, `[input places, *output places]`."""
    features = math.prod(linear.input.shape[-1:])
    places = linear.output.shape[:-1]
    dtype = summed(linear.output.dtype)

    def add(total: Array, k: Array, columns: Array) -> Array:
        squares = (columns.reshape(len(k), *places, -1).astype(dtype) ** 2).sum(-1)
        return total.at[k // features].add(squares, mode="drop")

    return _over_units(linear, jnp.zeros((math.prod(linear.input.shape[:-1]), *places), dtype), add)
