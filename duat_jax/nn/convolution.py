"""Convolutions, and the layer of a residual convolutional network: one term between two convolutions."""

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.nn.linear import PRECISION, Biased, alike, initial
from duat_jax.nn.mlp import ACTIVATIONS
from duat_jax.transform.marks import term

_LAYOUT = ("NHWC", "HWIO", "NHWC")


@final
class Convolution(Biased):
    """Apply `y_p = Σ_k x_{s p + k} W_k + b` at every pixel `p` of an image, with zeros beyond its border.

    Acting on `vec(x)` this is a block Toeplitz matrix, which is never formed: `Σ_k T_k ⊗ W_kᵀ`, where `T_k` takes pixel
    `p` from pixel `s p + k`.

    Args:
        inputs: channels of `x`.
        outputs: channels of `y`.
        size: rows and columns of the kernel, an odd number; `k` runs over pixels up to `(size − 1)/2` away.
        name: prefix of the bias's name.
        stride: `s`: `y` has every `s`-th row and column.
        bias: whether there is a bias.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; `None` gives zeros.

    Raises:
        DuatError: naming every size that isn't positive, and an even kernel size.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> Convolution(1, 4, 3, "edges", stride=2, rngs=nnx.Rngs(0))(jnp.ones((8, 8, 1))).shape
        (4, 4, 4)
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        name: str,
        *,
        stride: int = 1,
        bias: bool = True,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs | None,
    ) -> None:
        sizes = {"inputs": inputs, "outputs": outputs, "size": size, "stride": stride}
        problems = [f"{field} = {number} must be positive" for field, number in sizes.items() if number < 1]
        if size > 0 and size % 2 == 0:
            problems.append(f"size = {size} must be odd")
        if problems:
            raise DuatError(f"the convolution {name!r} is invalid: {'; '.join(problems)}")
        self.name = name
        self.stride = stride
        self.kernel = initial((size, size, inputs, outputs), dtype, rngs)
        self.bias = nnx.Param(jnp.zeros(outputs, dtype)) if bias else None

    def multiply(self, x: Float[Array, "... rows columns inputs"]) -> Float[Array, "... _ _ outputs"]:
        """Return `Σ_k x_{s p + k} W_k`.

        Args:
            x: `[..., rows, columns, inputs]`.
        """
        kernel = alike(self.kernel[...], x)
        around = kernel.shape[0] // 2
        y = jax.lax.conv_general_dilated(
            x.reshape(-1, *x.shape[-3:]),
            kernel,
            (self.stride, self.stride),
            [(around, around)] * 2,
            dimension_numbers=_LAYOUT,
            precision=PRECISION,
        )
        return y.reshape(*x.shape[:-3], *y.shape[1:])

    def __call__(self, x: Float[Array, "... rows columns inputs"]) -> Float[Array, "... _ _ outputs"]:
        """Return `Σ_k x_{s p + k} W_k + b`.

        Args:
            x: `[..., rows, columns, inputs]`.
        """
        return self.add_bias(self.multiply(x))


@final
class ResidualConvolution(nnx.Module):
    """One layer `x_i = R x_{i−1} + W3 σ(W2 x_{i−1} + b2) + b3`, where `W2` and `W3` are convolutions.

    `R` is the identity where the layer keeps the stream's shape, and otherwise a projection of every pixel, a
    convolution of size 1.

    Args:
        inputs: channels of the stream before the layer.
        outputs: channels after it, and of the term.
        activation: a name in `ACTIVATIONS`.
        size: rows and columns of the kernels, an odd number.
        stride: the stride of `W2` and `R`.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; `None` gives zeros.

    Raises:
        DuatError: if the activation isn't known, or as in `Convolution`.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> ResidualConvolution(4, 8, "relu", stride=2, rngs=nnx.Rngs(0))(jnp.ones((8, 8, 4))).shape
        (4, 4, 8)

    Source: Wang & Li, Eq. 20; He et al., "Identity Mappings in Deep Residual Networks", 2016, Eq. 3.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        activation: str,
        *,
        size: int = 3,
        stride: int = 1,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs | None,
    ) -> None:
        if activation not in ACTIVATIONS:
            raise DuatError(f"there is no activation {activation!r}: choose one of {', '.join(ACTIVATIONS)}")
        self.activation = activation
        self.input = Convolution(inputs, outputs, size, "convolution.input", stride=stride, dtype=dtype, rngs=rngs)
        self.output = Convolution(outputs, outputs, size, "convolution.output", dtype=dtype, rngs=rngs)
        self.shortcut = (
            None
            if (inputs, 1) == (outputs, stride)
            else Convolution(inputs, outputs, 1, "shortcut", stride=stride, bias=False, dtype=dtype, rngs=rngs)
        )

    def __call__(self, x: Float[Array, "... rows columns inputs"]) -> Float[Array, "... _ _ outputs"]:
        """Run the layer.

        Args:
            x: the residual stream, `[..., rows, columns, inputs]`.
        """
        activation = ACTIVATIONS[self.activation]
        shortcut = x if self.shortcut is None else self.shortcut(x)
        added = term(activation, self.input(x), "convolution", outer=self.output.multiply)
        return shortcut + self.output.add_bias(added)
