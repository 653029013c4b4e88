"""The sum of two linear maps."""

from dataclasses import dataclass

import jax
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.operators.base import LinearMap, fits, pytree, shown


@pytree("left", "right")
@dataclass(frozen=True, eq=False)
class Sum(LinearMap):
    """`A + B`, which is `x ↦ A x + B x`.

    Args:
        left: `A`.
        right: `B`.

    Raises:
        DuatError: if their inputs or outputs differ.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax.operators.kronecker import Kronecker
        >>> one = Kronecker(jnp.eye(2), jnp.eye(1))
        >>> Sum(one, one)(jnp.ones((2, 1))).tolist()
        [[2.0], [2.0]]
    """

    left: LinearMap
    right: LinearMap

    def __post_init__(self) -> None:
        left, right = self.left, self.right
        if not (fits(left.input, right.input) and fits(left.output, right.output)):
            raise DuatError(
                f"a map from {shown(left.input)} to {shown(left.output)} and one from {shown(right.input)} to"
                f" {shown(right.output)} have no sum: give both the same input and the same output"
            )

    @property
    def input(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the argument."""
        return self.left.input

    @property
    def output(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the result."""
        return self.left.output

    @property
    def T(self) -> "Sum":
        """The transposed map, `Aᵀ + Bᵀ`."""
        return Sum(self.left.T, self.right.T)

    def _apply(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.left(x) + self.right(x)
