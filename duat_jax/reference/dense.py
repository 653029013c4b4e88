"""The papers' explicit matrices on `vec(x)`, for small cases and as a reference."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def vec(x: Float[Array, "tokens features"]) -> Float[Array, "entries"]:
    """Return the entries of `x` row by row, `x'` (the papers' `T_D`).

    Example:
        >>> import jax.numpy as jnp
        >>> vec(jnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    return x.reshape(-1)


def unvec(x: Float[Array, "entries"], tokens: int) -> Float[Array, "tokens features"]:
    """Return the array whose `vec` is `x`.

    Example:
        >>> import jax.numpy as jnp
        >>> unvec(jnp.arange(4.0), 2).tolist()
        [[0.0, 1.0], [2.0, 3.0]]
    """
    return x.reshape(tokens, -1)


def linear_on_features(kernel: Float[Array, "inputs outputs"], tokens: int) -> Float[Array, "rows columns"]:
    """Return the matrix `W' = I_N ⊗ Wᵀ` of `y = x W`.

    Example:
        >>> import jax.numpy as jnp
        >>> linear_on_features(jnp.array([[2.0]]), 2).tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """
    return jnp.kron(jnp.eye(tokens, dtype=kernel.dtype), kernel.T)


def linear_on_rows(matrix: Float[Array, "outputs tokens"], features: int) -> Float[Array, "rows columns"]:
    """Return the matrix `W' = W ⊗ I_M` of `y = W x`, the papers' orientation, of density `1/M`.

    Example:
        >>> import jax.numpy as jnp
        >>> linear_on_rows(jnp.array([[2.0]]), 2).tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """
    return jnp.kron(matrix, jnp.eye(features, dtype=matrix.dtype))


def attention(
    pattern: Float[Array, "heads queries keys"],
    value: Float[Array, "heads features head_features"],
    output: Float[Array, "heads head_features features"],
) -> Float[Array, "rows columns"]:
    """Return `W'_{HVO} = Σ_h H_h ⊗ (W_{V,h} W_{O,h})ᵀ` of an attention, which the papers call too complex to state.

    Example:
        >>> import jax.numpy as jnp
        >>> ones = jnp.ones((1, 1, 1))
        >>> attention(jnp.eye(2)[None], 2 * ones, ones).tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """
    summands = [jnp.kron(h, (v @ o).T) for h, v, o in zip(pattern, value, output, strict=True)]
    return jnp.sum(jnp.stack(summands), axis=0)
