"""A linear map without its matrix."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

if TYPE_CHECKING:
    import lineax


@dataclass(frozen=True)
class LinearMap:
    """A linear map between arrays, known by what it does.

    Args:
        function: a linear function of one array.
        input: shape and dtype of its argument.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> double = LinearMap(lambda x: 2 * x, jax.ShapeDtypeStruct((2,), jnp.float32))
        >>> double(jnp.ones(2)).tolist(), double.dense().tolist()
        ([2.0, 2.0], [[2.0, 0.0], [0.0, 2.0]])
    """

    function: Callable[[Array], Array]
    input: jax.ShapeDtypeStruct

    @property
    def output(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the result."""
        return jax.eval_shape(self.function, self.input)

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Apply the map.

        Args:
            x: an array of the input's shape.
        """
        return self.function(x)

    @property
    def T(self) -> "LinearMap":
        """The transposed map."""
        pull_back = jax.vjp(self.function, jnp.zeros(self.input.shape, self.input.dtype))[1]
        return LinearMap(lambda u: pull_back(u)[0], self.output)

    def dense(self) -> Float[Array, "outputs inputs"]:
        """Return the matrix that acts on `vec(x)`, row-major: for small cases only."""
        size = math.prod(self.input.shape)
        basis = jnp.eye(size, dtype=self.input.dtype).reshape(size, *self.input.shape)
        return jax.vmap(lambda e: self.function(e).reshape(-1), out_axes=1)(basis)

    def as_lineax(self) -> "lineax.FunctionLinearOperator":
        """Return the map as a lineax operator (install `duat-jax[lineax]`)."""
        import lineax

        return lineax.FunctionLinearOperator(self.function, self.input)


def derivative_of(affine: Callable[[Array], Array], input: jax.ShapeDtypeStruct) -> LinearMap:
    """Return the linear part of an affine function.

    Args:
        affine: an affine function of one array.
        input: shape and dtype of its argument.
    """
    zero = jnp.zeros(input.shape, input.dtype)
    return LinearMap(lambda v: jax.jvp(affine, (zero,), (v,))[1], input)
