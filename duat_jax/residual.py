"""The residual term of every block type, as dense matrices from its weights and its held dynamics (Eq. 20).

Independent of record and replay, and their reference: the table of block types written out.
"""

from typing import NamedTuple, cast

import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.matrix_vector import attention, linear_on_features
from duat_jax.nn.attention import Attention, SlicedAttention
from duat_jax.nn.block import PaperBlock, PaperResidualBlock, ParallelBlock, PostNormBlock, PreNormBlock
from duat_jax.nn.linear import Linear
from duat_jax.nn.norm import LayerNorm
from duat_jax.nn.stack import Stack
from duat_jax.record_replay import Dynamics


class Affine(NamedTuple):
    """`x' ↦ matrix x' + offset` on vectors.

    Args:
        matrix: `[outputs, inputs]`.
        offset: `[outputs]`.
    """

    matrix: Float[Array, "outputs inputs"]
    offset: Float[Array, "outputs"]

    def after(self, inner: "Affine") -> "Affine":
        """Return this map after another one.

        Args:
            inner: what is applied first.
        """
        return Affine(self.matrix @ inner.matrix, self.matrix @ inner.offset + self.offset)

    def plus(self, other: "Affine") -> "Affine":
        """Return the sum of two maps.

        Args:
            other: the other summand.
        """
        return Affine(self.matrix + other.matrix, self.offset + other.offset)


class ResidualTerm(NamedTuple):
    """`x_i = (W_{i,1} x_{i−1} + b_{i,3}) + W_{i,3} σ(W_{i,2} x_{i−1} + b_{i,2})` (Wang & Li, Eq. 20).

    Args:
        path: `W_{i,1}` and `b_{i,3}`.
        inner: `W_{i,2}` and `b_{i,2}`.
        outer: `W_{i,3}`.
    """

    path: Affine
    inner: Affine
    outer: Float[Array, "outputs neurons"]


def _bias(layer: Linear) -> Float[Array, "outputs"]:
    return jnp.zeros(layer.kernel.shape[1], layer.kernel.dtype) if layer.bias is None else layer.bias[...]


def _linear(layer: Linear, tokens: int) -> Affine:
    return Affine(linear_on_features(layer.kernel[...], tokens), jnp.tile(_bias(layer), tokens))


def _norm(layer: LayerNorm, scale: Float[Array, "tokens 1"]) -> Affine:
    """`LN(x) = diag(s) (x − mean) γ + β` with the scale held."""
    features = layer.scale.shape[0]
    centre = jnp.eye(features, dtype=scale.dtype) - 1 / features
    per_token = centre @ jnp.diag(layer.scale[...])
    return Affine(jnp.kron(jnp.diag(scale[:, 0]), per_token.T), jnp.tile(layer.bias[...], scale.shape[0]))


def _attention(layer: Attention | SlicedAttention, pattern: Float[Array, "heads queries keys"]) -> Affine:
    heads, tokens, _ = pattern.shape
    output = layer.output.kernel[...].reshape(heads, -1, layer.output.kernel.shape[1])
    if isinstance(layer, SlicedAttention):
        size = layer.value.shape[1]
        slices = jnp.eye(heads * size, dtype=pattern.dtype).reshape(-1, heads, size).transpose(1, 0, 2)
        matrix = attention(pattern, slices @ layer.value[...], output)
        return Affine(matrix, jnp.zeros(len(matrix), pattern.dtype))
    features = layer.value.kernel.shape[0]
    value = layer.value.kernel[...].reshape(features, heads, -1).transpose(1, 0, 2)
    # The rows of a pattern sum to one, so the value bias passes through it unchanged.
    offset = _bias(layer.value) @ layer.output.kernel[...] + _bias(layer.output)
    return Affine(attention(pattern, value, output), jnp.tile(offset, tokens))


def residual_term(
    block: PaperBlock | PreNormBlock,
    pattern: Float[Array, "heads queries keys"],
    scales: tuple[Float[Array, "tokens 1"], ...] = (),
) -> ResidualTerm:
    """Return a block's residual term from its weights and its held dynamics.

    | block | `W_{i,1}` | `W_{i,2}` | `W_{i,3}` |
    |---|---|---|---|
    | paper (Eq. 30) | `A` | `W2 A` | `W3` |
    | paper with attention residual | `I + A` | `W2 (I + A)` | `W3` |
    | pre-norm | `I + A D1` | `W2 D2 (I + A D1)` | `W3` |
    | post-norm | `D2 D1 (I + A)` | `W2 D1 (I + A)` | `D2 W3` |
    | parallel | `I + A D1` | `W2 D2` | `W3` |

    Args:
        block: one of the five block types.
        pattern: its held attention pattern, `[heads, queries, keys]`.
        scales: the held scales of its two norms, each `[tokens, 1]`; empty for the papers' blocks.

    Returns:
        Dense matrices and vectors that act on `vec(x)`.

    Source: Wang & Li, Eq. 20 and 30.
    """
    tokens = pattern.shape[-1]
    mixed = _attention(block.attention, pattern)
    size = len(mixed.matrix)
    identity = Affine(jnp.eye(size, dtype=pattern.dtype), jnp.zeros(size, pattern.dtype))
    inner, outer = _linear(block.mlp.input, tokens), _linear(block.mlp.output, tokens)
    bias = Affine(jnp.zeros_like(identity.matrix), outer.offset)
    if isinstance(block, PreNormBlock):
        norm_1, norm_2 = _norm(block.norm_1, scales[0]), _norm(block.norm_2, scales[1])
    match block:
        case PaperResidualBlock():
            path = identity.plus(mixed)
            return ResidualTerm(path.plus(bias), inner.after(path), outer.matrix)
        case PaperBlock():
            return ResidualTerm(mixed.plus(bias), inner.after(mixed), outer.matrix)
        case PostNormBlock():
            path = norm_1.after(identity.plus(mixed))
            return ResidualTerm(norm_2.after(path.plus(bias)), inner.after(path), norm_2.matrix @ outer.matrix)
        case ParallelBlock():
            path = identity.plus(mixed.after(norm_1))
            return ResidualTerm(path.plus(bias), inner.after(norm_2), outer.matrix)
        case _:
            path = identity.plus(mixed.after(norm_1))
            return ResidualTerm(path.plus(bias), inner.after(norm_2).after(path), outer.matrix)


def residual_terms(stack: Stack, dynamics: Dynamics) -> list[ResidualTerm]:
    """Return the residual term of every block of a stack, from its weights and its recorded dynamics.

    Args:
        stack: the stack.
        dynamics: what `record` or a closed form says of it at one input.

    Source: Wang & Li, Eq. 20 and 30.
    """
    # A name that occurs once has no number.
    held = {key if "/" in key else f"{key}/0": value for key, value in dynamics.held.items()}
    return [
        residual_term(
            block,
            held[f"attention.pattern/{i}"],
            tuple(held[f"{norm}.scale/{i}"] for norm in ("norm_1", "norm_2") if f"{norm}.scale/{i}" in held),
        )
        for i, block in enumerate(cast(list[PaperBlock | PreNormBlock], stack.blocks))
    ]
