"""One layer as an affine path and its terms: the vocabulary of Eq. 20."""

from typing import Any, NamedTuple

from jaxtyping import Array, Float

from duat_jax.errors import DuatError


class Term(NamedTuple):
    """One term of a layer, `outer σ(inner x + inner_bias)`.

    Args:
        inner: `W_{i,2}`.
        inner_bias: `b_{i,2}`.
        outer: `W_{i,3}`.
    """

    inner: Any
    inner_bias: Float[Array, "..."]
    outer: Any


class ResidualTerm(NamedTuple):
    """One layer: `x_i = path x_{i−1} + path_bias + Σ outer σ(inner x_{i−1} + inner_bias)`, usually with one term.

    Layers are counted from 1.  The maps are linear maps without their matrices, with biases in the shape of the stream
    and the neurons; or, in the reference, matrices and vectors that act on `vec(x)`.

    Args:
        path: `W_{i,1}`.
        path_bias: `b_{i,3}`.
        terms: the layer's terms; attention alone has none, parallel MLPs have several.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> identity = jnp.eye(1)
        >>> layer = ResidualTerm(identity, jnp.zeros(1), (Term(2 * identity, jnp.ones(1), -identity),))
        >>> x = jnp.array([3.0])
        >>> (layer.path @ x + layer.path_bias + layer.outer @ jax.nn.relu(layer.inner @ x + layer.inner_bias)).tolist()
        [-4.0]

    Source: Wang & Li, Eq. 20.
    """

    path: Any
    path_bias: Float[Array, "..."]
    terms: tuple[Term, ...]

    @property
    def _only(self) -> Term:
        if len(self.terms) != 1:
            raise DuatError(f"this layer has {len(self.terms)} terms, not one: choose among its `terms`")
        return self.terms[0]

    @property
    def inner(self) -> Any:
        """`W_{i,2}` of the layer's only term."""
        return self._only.inner

    @property
    def inner_bias(self) -> Float[Array, "..."]:
        """`b_{i,2}` of the layer's only term."""
        return self._only.inner_bias

    @property
    def outer(self) -> Any:
        """`W_{i,3}` of the layer's only term."""
        return self._only.outer
