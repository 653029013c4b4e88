"""The papers' recursions over a stack of residual terms, as dense matrices in two indices (Eq. 34)."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.forms.residual_term import ResidualTerm


class UnrolledTerm(NamedTuple):
    """One term of the unrolled form: `C_j σ(B_j x_0 + c_j)`.

    Args:
        inner: `B_j`, which is `W'_{j,2}`.
        inner_bias: `c_j`, which is `b'_{j,2}`: it contains the earlier terms.
        outer: `C_j^{(i)}`, which is `W'_{j,3}` carried to the last layer.
        activation: `σ(B_j x_0 + c_j)`.
    """

    inner: Float[Array, "neurons inputs"]
    inner_bias: Float[Array, "neurons"]
    outer: Float[Array, "outputs neurons"]
    activation: Float[Array, "neurons"]


class Unrolled(NamedTuple):
    """The unrolled form at one depth: `x_i = P_i x_0 + q_i + UAT^R_i`.

    Args:
        input: `P_i`, which is `W'_{i,1}`.
        bias: `q_i`, which is `b'_{i,3}`.
        terms: the summands of `UAT^R_i`.
    """

    input: Float[Array, "outputs inputs"]
    bias: Float[Array, "outputs"]
    terms: tuple[UnrolledTerm, ...]

    def term_sum(self) -> Float[Array, "outputs"]:
        """Compute `UAT^R_i = Σ_{j≤i} C_j^{(i)} σ(B_j x_0 + c_j)`."""
        return sum((term.outer @ term.activation for term in self.terms), jnp.zeros_like(self.bias))

    def evaluate(self, x0: Float[Array, "inputs"]) -> Float[Array, "outputs"]:
        """Compute `P_i x_0 + q_i + UAT^R_i`."""
        return self.input @ x0 + self.bias + self.term_sum()


def unroll_terms(
    terms: list[ResidualTerm], activation: Callable[[Array], Array], x0: Float[Array, "inputs"]
) -> list[Unrolled]:
    """Unroll a stack of residual terms."""
    # `P_i = W_{i,1} P_{i−1}`, `q_i = W_{i,1} q_{i−1} + b_{i,3}`, `C_j^{(i)} = W_{i,1} C_j^{(i−1)}`, `C_i^{(i)} =
    # W_{i,3}`, `B_i = W_{i,2} P_{i−1}` and `c_i = b_{i,2} + W_{i,2} (q_{i−1} + UAT^R_{i−1})`.
    form = Unrolled(jnp.eye(len(x0), dtype=x0.dtype), jnp.zeros_like(x0), ())
    forms = [form]
    for layer in terms:
        inner_bias = layer.inner_bias + layer.inner @ (form.bias + form.term_sum())
        inner = layer.inner @ form.input
        born = UnrolledTerm(inner, inner_bias, layer.outer, activation(inner @ x0 + inner_bias))
        carried = tuple(term._replace(outer=layer.path @ term.outer) for term in form.terms)
        form = Unrolled(layer.path @ form.input, layer.path @ form.bias + layer.path_bias, (*carried, born))
        forms.append(form)
    return forms
