"""A linear layer with its bias marked as an offset, and helpers for parameters."""

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Shaped

from duat_jax.operators.precision import PRECISION
from duat_jax.transform.marks import offset

INITIAL_SCALE = 0.02

BLOCK, SMALLEST = 512, 4
"""The largest number of a vocabulary's rows that are summed at once, and the smallest that avoids a copy."""


def initial(shape: tuple[int, ...], dtype: DTypeLike, rngs: nnx.Rngs | None) -> nnx.Param:
    """Return a normally distributed parameter of standard deviation 0.02, or zeros without a source."""
    # A draw takes time in proportion to the program traced before it: a skeleton is built without any.
    if rngs is None:
        return nnx.Param(jnp.zeros(shape, dtype))
    return nnx.Param(INITIAL_SCALE * jax.random.normal(rngs.params(), shape, dtype))


def alike(parameter: Shaped[Array, "..."], x: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """Convert a parameter to the dtype of its operand, if that has more bits.

    Example:
        >>> alike(jnp.ones(2, jnp.bfloat16), jnp.ones(2, jnp.float32)).dtype.name
        'float32'
    """
    # So nothing is rounded, and a stream in float32 stays in float32 for weights of any dtype.
    return parameter.astype(x.dtype) if jnp.finfo(parameter.dtype).bits < jnp.finfo(x.dtype).bits else parameter


def product(x: Shaped[Array, "... inputs"], matrix: Shaped[Array, "inputs outputs"]) -> Shaped[Array, "... outputs"]:
    """Return `x W`, computed in the dtype of `x` if that has more bits than `W`.

    Example:
        >>> product(jnp.ones(2), jnp.eye(2, dtype=jnp.bfloat16)).tolist()
        [1.0, 1.0]
    """
    # On the way back the matrix is converted again: its copy would take more memory than the matrix, in every layer.

    def multiply(x: Array, matrix: Array) -> Array:
        return jnp.matmul(x, alike(matrix, x), precision=PRECISION)

    return (multiply if alike(matrix, x) is matrix else jax.checkpoint(multiply))(x, matrix)


def computed_in(dtype: DTypeLike) -> jnp.dtype:
    """Return the dtype of computations with parameters of a dtype: float32 at least."""
    return jnp.dtype(dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32)


def in_blocks(rows: Float[Array, "rows *columns"]) -> Float[Array, "blocks block *columns"]:
    """Split rows into blocks of one size, since a single long sum over a vocabulary would lose digits.

    Example:
        >>> in_blocks(jnp.ones((50257, 2))).shape, in_blocks(jnp.ones((521, 2))).shape
        ((1733, 29, 2), (2, 512, 2))
    """
    # Blocks that divide the rows need no copy. If there is no such size, as for a prime number of rows, zeros are
    # added.
    count, most = len(rows), min(BLOCK, len(rows))
    block = next((size for size in range(most, SMALLEST - 1, -1) if count % size == 0), most)
    missing = -count % block
    return jnp.pad(rows, ((0, missing), *[(0, 0)] * (rows.ndim - 1))).reshape(-1, block, *rows.shape[1:])


class Biased(nnx.Module):
    """A linear layer whose bias is added apart from its product, so that a term can stand between them."""

    name: str
    bias: nnx.Param | None

    def add_bias(self, y: Float[Array, "... outputs"]) -> Float[Array, "... outputs"]:
        """Return `y + b`, the bias marked as an offset.

        Args:
            y: `[..., outputs]`.
        """
        return y if self.bias is None else y + offset(alike(self.bias[...], y), f"{self.name}.bias")


@final
class Linear(Biased):
    """Apply `y = x W + b` to the last axis.

    Acting on `vec(x)` this is `W' = I_N ⊗ Wᵀ` (Wang & Li, Eq. 5, for features instead of rows).

    Args:
        inputs: size of the last axis of `x`.
        outputs: size of the last axis of `y`.
        name: prefix of the bias's name.
        bias: whether there is a bias.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; `None` gives zeros.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        name: str,
        *,
        bias: bool = True,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs | None,
    ) -> None:
        self.name = name
        self.kernel = initial((inputs, outputs), dtype, rngs)
        self.bias = nnx.Param(jnp.zeros(outputs, dtype)) if bias else None

    def multiply(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Return `x W`.

        Args:
            x: `[..., inputs]`.
        """
        return product(x, self.kernel[...])

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Return `x W + b`.

        Args:
            x: `[..., inputs]`.
        """
        return self.add_bias(self.multiply(x))
