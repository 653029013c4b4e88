"""The unrolled form's parameters, computed in parallel over the layers by a scan (Eq. 34)."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.forms.residual_term import ResidualTerm
from duat_jax.nn.linear import PRECISION


class StackedTerms(NamedTuple):
    """The residual terms of layers of equal shapes, with one array for each parameter.

    Args:
        path: every `W_{i,1}`.
        path_bias: every `b_{i,3}`.
        inner: every `W_{i,2}`.
        inner_bias: every `b_{i,2}`.
        outer: every `W_{i,3}`.
    """

    path: Float[Array, "layers features features"]
    path_bias: Float[Array, "layers features"]
    inner: Float[Array, "layers neurons features"]
    inner_bias: Float[Array, "layers neurons"]
    outer: Float[Array, "layers features neurons"]


class Parameters(NamedTuple):
    """All parameters of an unrolled stack of `L` layers, with one array for all depths.

    Args:
        input: `P_i`, from `P_0 = I` on.
        bias: `q_i`, from `q_0 = 0` on.
        term_sum: `UAT^R_i`, from zero on.
        inner: `B_j`.
        inner_bias: `c_j`.
        outer: `C_j^{(L)}`, carried to the last layer.
    """

    input: Float[Array, "depths features features"]
    bias: Float[Array, "depths features"]
    term_sum: Float[Array, "depths features"]
    inner: Float[Array, "layers neurons features"]
    inner_bias: Float[Array, "layers neurons"]
    outer: Float[Array, "layers features neurons"]


def stack_terms(terms: Sequence[ResidualTerm]) -> StackedTerms:
    """Stack the residual terms of layers into one array for each parameter.

    Args:
        terms: the residual term of every layer, as dense matrices; one term in each, all of one shape.

    Raises:
        DuatError: naming every layer that has another number of terms than one, or other shapes than the first.
    """
    problems = ["there are no layers: give the residual term of at least one"] if not terms else []
    for i, layer in enumerate(terms, 1):
        if len(layer.terms) != 1:
            problems.append(f"layer {i} has {len(layer.terms)} terms, not one")
        elif not problems and (shapes := _shapes(layer)) != _shapes(terms[0]):
            problems.append(f"layer {i} is of shapes {shapes}, the first layer of {_shapes(terms[0])}")
        elif layer.path.shape[0] != layer.path.shape[1]:
            problems.append(f"layer {i} changes the stream's size from {layer.path.shape[1]} to {layer.path.shape[0]}")
    if problems:
        raise DuatError(f"these layers don't fit into one array: {'; '.join(problems)}")
    rows = [(t.path, t.path_bias, t.inner, t.inner_bias, t.outer) for t in terms]
    return StackedTerms(*(jnp.stack(parameters) for parameters in zip(*rows, strict=True)))


def _shapes(layer: ResidualTerm) -> tuple[tuple[int, ...], ...]:
    return layer.path.shape, layer.inner.shape, layer.outer.shape


def _times(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=PRECISION)


def unroll_in_parallel(layers: StackedTerms, activations: Float[Array, "layers neurons"]) -> Parameters:
    """Compute all parameters of the unrolled form from the activations, in about `2 log₂ L` steps of products.

    Affine maps compose associatively, `(W, b) ∘ (V, a) = (W V, W a + b)`, and the stream's three parts go through the
    same `W_{i,1}`: `P_i`, `q_i` and `UAT^R_i` are one scan over the layers' `(W_{i,1}, [b_{i,3}, W_{i,3} σ_i])`. The
    products that carry the terms on, `W_{L,1} ⋯ W_{j+1,1}`, are another scan from the end. `B_j = W_{j,2} P_{j−1}`,
    `c_j = b_{j,2} + W_{j,2} (q_{j−1} + UAT^R_{j−1})` and `C_j = W_{L,1} ⋯ W_{j+1,1} W_{j,3}` are then products of each
    layer on its own.

    Args:
        layers: the residual terms.
        activations: `σ_j = σ(B_j x_0 + c_j)`, as the forward pass recorded them: they can't be computed in parallel,
            since `c_j` contains all of the earlier ones.

    Raises:
        DuatError: if there aren't as many activations as neurons.

    Example:
        >>> import jax.numpy as jnp
        >>> ones = jnp.ones((2, 1, 1))
        >>> layers = StackedTerms(2 * ones, jnp.ones((2, 1)), ones, jnp.zeros((2, 1)), ones)
        >>> form = unroll_in_parallel(layers, jnp.array([[3.0], [10.0]]))
        >>> form.input.ravel().tolist(), form.bias.ravel().tolist(), form.term_sum.ravel().tolist()
        ([1.0, 2.0, 4.0], [0.0, 1.0, 3.0], [0.0, 3.0, 16.0])

    Source: Wang & Li, Eq. 34, which Appendix B.3 calls serial; the scan is that of Blelloch, "Prefix Sums and Their
    Applications", 1990.
    """
    if activations.shape != layers.inner_bias.shape:
        raise DuatError(
            f"the activations are of shape {activations.shape}, but the layers' neurons of {layers.inner_bias.shape}:"
            " give those of every layer, as the forward pass recorded them"
        )
    born = _times(layers.outer, activations[..., None])
    added = jnp.concatenate([layers.path_bias[..., None], born], -1)

    def then(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return _times(second[0], first[0]), _times(second[0], first[1]) + second[1]

    paths, sums = jax.lax.associative_scan(then, (layers.path, added))
    identity = jnp.eye(layers.path.shape[-1], dtype=layers.path.dtype)[None]
    paths, sums = jnp.concatenate([identity, paths]), jnp.concatenate([jnp.zeros_like(sums[:1]), sums])
    after = jax.lax.associative_scan(_times, jnp.concatenate([layers.path[1:], identity]), reverse=True)
    stream = sums[:-1].sum(-1, keepdims=True)
    return Parameters(
        paths,
        sums[..., 0],
        sums[..., 1],
        _times(layers.inner, paths[:-1]),
        layers.inner_bias + _times(layers.inner, stream)[..., 0],
        _times(after, layers.outer),
    )
