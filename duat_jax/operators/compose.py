"""One linear map after another."""

from dataclasses import dataclass

import jax
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.operators.base import LinearMap, fits, pytree, shown


@pytree("outer", "inner")
@dataclass(frozen=True, eq=False)
class Composition(LinearMap):
    """`A B`, which is `x ↦ A (B x)`.

    Args:
        outer: `A`.
        inner: `B`, which is applied first.

    Raises:
        DuatError: if the output of `B` isn't the input of `A`.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax.operators.kronecker import Kronecker
        >>> double = Kronecker(2 * jnp.eye(2), jnp.eye(1))
        >>> Composition(double, double)(jnp.ones((2, 1))).tolist()
        [[4.0], [4.0]]
    """

    outer: LinearMap
    inner: LinearMap

    def __post_init__(self) -> None:
        if not fits(self.outer.input, self.inner.output):
            raise DuatError(
                f"the outer map takes {shown(self.outer.input)} and the inner map gives {shown(self.inner.output)}:"
                " compose maps where the one gives what the other takes"
            )

    @property
    def input(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the argument."""
        return self.inner.input

    @property
    def output(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the result."""
        return self.outer.output

    @property
    def T(self) -> "Composition":
        """The transposed map, `Bᵀ Aᵀ`."""
        return Composition(self.inner.T, self.outer.T)

    def _apply(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.outer(self.inner(x))
