"""The Kronecker product of two matrices as a linear map."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.operators.linear_map import LinearMap, pytree
from duat_jax.operators.precision import PRECISION
from duat_jax.operators.shapes import describe


@pytree("left", "right")
@dataclass(frozen=True, eq=False)
class Kronecker(LinearMap):
    """`A ⊗ B` on `vec(x)`, row-major, applied as `A x Bᵀ`.

    A linear layer on features, `y = x W`, is `I_N ⊗ Wᵀ`; on rows, `y = W x`, it is `W ⊗ I_M`; a head of attention with
    its pattern held is `H ⊗ (W_V W_O)ᵀ`.

    Args:
        left: `A`, `[outputs, inputs]`, acts on tokens.
        right: `B`, `[outputs, inputs]`, acts on features.

    Raises:
        DuatError: if one isn't a matrix, or their dtypes differ.

    Example:
        >>> import jax.numpy as jnp
        >>> layer = Kronecker(jnp.eye(2), jnp.array([[2.0, 1.0]]))
        >>> layer(jnp.array([[1.0, 0.0], [0.0, 1.0]])).tolist(), layer.dense().tolist()
        ([[2.0], [1.0]], [[2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 1.0]])

    Source: Wang & Li, Eq. 5.
    """

    left: Float[Array, "..."]
    right: Float[Array, "..."]

    def __post_init__(self) -> None:
        left, right = self.left, self.right
        if left.ndim != 2 or right.ndim != 2 or left.dtype != right.dtype:
            raise DuatError(
                f"a Kronecker product takes two matrices of one dtype, but left is {describe(left)} and right is"
                f" {describe(right)}: give two matrices"
            )

    @property
    def input(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the argument, `[tokens, features]`."""
        return jax.ShapeDtypeStruct((self.left.shape[1], self.right.shape[1]), self.left.dtype)

    @property
    def output(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the result, `[tokens, features]`."""
        return jax.ShapeDtypeStruct((self.left.shape[0], self.right.shape[0]), self.left.dtype)

    @property
    def T(self) -> "Kronecker":
        """The transposed map, `Aᵀ ⊗ Bᵀ`."""
        return Kronecker(self.left.T, self.right.T)

    def _apply(self, x: Float[Array, "tokens features"]) -> Float[Array, "output_tokens output_features"]:
        return jnp.linalg.multi_dot((self.left, x, self.right.T), precision=PRECISION)
