"""The matrix of a convolution on `vec(x)`, and a residual convolution's residual term (Eq. 20)."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.forms.residual_term import ResidualTerm, Term
from duat_jax.nn.convolution import Convolution, ResidualConvolution


def convolution(
    kernel: Float[Array, "size size inputs outputs"], rows: int, columns: int, stride: int = 1
) -> Float[Array, "after before"]:
    """Return the block Toeplitz matrix `Σ_{k,l} (T_k ⊗ T_l) ⊗ W_{k,l}ᵀ` of a convolution with zeros beyond the border.

    `T_k` takes row `p` of the result from row `stride · p + k` of the image, where there is one.

    Args:
        kernel: `W`, of an odd size, `[size, size, inputs, outputs]`.
        rows: rows of the image.
        columns: columns of the image.
        stride: distance of the rows and columns that the result has.

    Returns:
        The matrix that acts on `vec(x)` of an image `[rows, columns, inputs]`.

    Example:
        >>> import jax.numpy as jnp
        >>> kernel = jnp.zeros((3, 3, 1, 1)).at[1, :, 0, 0].set(jnp.array([1.0, 2.0, 3.0]))
        >>> convolution(kernel, 1, 3).tolist()
        [[2.0, 3.0, 0.0], [1.0, 2.0, 3.0], [0.0, 1.0, 2.0]]

    Source: Wang & Li, Appendix D, in one dimension.
    """
    away = range(-(len(kernel) // 2), len(kernel) // 2 + 1)

    def shift(places: int, k: int) -> Float[Array, "after before"]:
        after = jnp.arange(0, places, stride)[:, None]
        return (jnp.arange(places) == after + k).astype(kernel.dtype)

    summands = [
        jnp.kron(jnp.kron(shift(rows, k), shift(columns, l)), kernel[a, b].T)
        for a, k in enumerate(away)
        for b, l in enumerate(away)
    ]
    return jnp.sum(jnp.stack(summands), axis=0)


def residual_term(block: ResidualConvolution, rows: int, columns: int) -> ResidualTerm:
    """Return a residual convolution's residual term, which doesn't depend on the input.

    `W_{i,1}` is the identity or a projection of every pixel, `W_{i,2}` and `W_{i,3}` are the convolutions' matrices.

    Args:
        block: the layer.
        rows: rows of the layer's input.
        columns: columns of the layer's input.

    Source: Wang & Li, Eq. 20.
    """
    stride = block.input.stride
    after = (len(range(0, rows, stride)), len(range(0, columns, stride)))
    inner = convolution(block.input.kernel[...], rows, columns, stride)
    path = (
        jnp.eye(inner.shape[1], dtype=inner.dtype)
        if block.shortcut is None
        else convolution(block.shortcut.kernel[...], rows, columns, stride)
    )

    def bias(layer: Convolution) -> Float[Array, "entries"]:
        return (
            jnp.zeros(len(inner), inner.dtype) if layer.bias is None else jnp.tile(layer.bias[...], after[0] * after[1])
        )

    outer = convolution(block.output.kernel[...], *after)
    return ResidualTerm(path, bias(block.output), (Term(inner, bias(block.input), outer),))
