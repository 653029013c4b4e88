"""The residual term of every block type, as dense matrices from its weights and held values (Eq. 20).

They are independent of record and replay, and serve as their reference: the table of block types, written out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.forms.residual_term import ResidualTerm, Term
from duat_jax.nn.attention import Attention, SlicedAttention
from duat_jax.nn.block import Block
from duat_jax.nn.linear import Linear
from duat_jax.nn.mlp import MLP, GatedMLP
from duat_jax.nn.norm import LayerNorm, RMSNorm
from duat_jax.nn.stack import Stack
from duat_jax.reference.dense import attention, linear_on_features

Held = Mapping[str, Array]
"""The held values of one block by name, for example `"attention.pattern"` and `"norm_1.scale"`."""


class DenseAffine(NamedTuple):
    """An affine map on vectors, `x' ↦ matrix x' + offset`.

    Args:
        matrix: `[outputs, inputs]`.
        offset: `[outputs]`.
    """

    matrix: Float[Array, "outputs inputs"]
    offset: Float[Array, "outputs"]

    def after(self, inner: "DenseAffine") -> "DenseAffine":
        """Compose this map with another that is applied first."""
        return DenseAffine(self.matrix @ inner.matrix, self.matrix @ inner.offset + self.offset)

    def times(self, factor: float) -> "DenseAffine":
        """Multiply this map by a number."""
        return DenseAffine(factor * self.matrix, factor * self.offset)

    def plus(self, other: "DenseAffine") -> "DenseAffine":
        """Add another map to this one."""
        return DenseAffine(self.matrix + other.matrix, self.offset + other.offset)


def _term(path: DenseAffine, inner: DenseAffine, outer: Float[Array, "outputs neurons"]) -> ResidualTerm:
    return ResidualTerm(*path, (Term(*inner, outer),))


def _value(held: Held, name: str) -> Array:
    if name not in held:
        raise DuatError(
            f"the block's held {name!r} is missing; the held values are {', '.join(sorted(held)) or 'none'}"
        )
    return held[name]


def _unknown(role: str, part: object, supported: str) -> DuatError:
    return DuatError(
        f"the table of block types has no {role} {type(part).__name__}, only {supported}, and not their subclasses:"
        " unroll the function itself"
    )


def _bias(layer: Linear) -> Float[Array, "outputs"]:
    return jnp.zeros(layer.kernel.shape[1], layer.kernel.dtype) if layer.bias is None else layer.bias[...]


def _linear(layer: Linear, tokens: int) -> DenseAffine:
    return DenseAffine(linear_on_features(layer.kernel[...], tokens), jnp.tile(_bias(layer), tokens))


def _norm(layer: Any, name: str, held: Held, like: DenseAffine, tokens: int) -> DenseAffine:
    """Return `LN(x) = diag(s) (x − mean) γ + β` or `RMS(x) = diag(s) x γ`, with `s` held; or the identity."""
    features, dtype = len(like.offset) // tokens, like.offset.dtype
    if layer is None:
        return DenseAffine(jnp.eye(len(like.offset), dtype=dtype), jnp.zeros_like(like.offset))
    if type(layer) is LayerNorm:
        per_token = (jnp.eye(features, dtype=dtype) - 1 / features) @ jnp.diag(layer.scale[...])
        offset = jnp.zeros(features, dtype) if layer.bias is None else layer.bias[...]
    elif type(layer) is RMSNorm:
        per_token, offset = jnp.diag(layer.weight_offset + layer.scale[...]), jnp.zeros(features, dtype)
    else:
        raise _unknown("norm", layer, "LayerNorm and RMSNorm")
    scale = _value(held, f"{name}.scale")
    return DenseAffine(jnp.kron(jnp.diag(scale[:, 0]), per_token.T), jnp.tile(offset, tokens))


def _attention(layer: Any, held: Held) -> DenseAffine:
    if type(layer) not in (Attention, SlicedAttention):
        raise _unknown("attention", layer, "Attention and SlicedAttention")
    pattern = _value(held, "attention.pattern")
    heads, tokens, _ = pattern.shape
    output = layer.output.kernel[...].reshape(heads, -1, layer.output.kernel.shape[1])
    if type(layer) is SlicedAttention:
        size = layer.value.shape[1]
        slices = jnp.eye(heads * size, dtype=pattern.dtype).reshape(-1, heads, size).transpose(1, 0, 2)
        matrix = attention(pattern, slices @ layer.value[...], output)
        return DenseAffine(matrix, jnp.zeros(len(matrix), pattern.dtype))
    # Query head h reads the key/value head h · key_value_heads / heads, rounded down.
    key_head = [h * layer.key_value_heads // heads for h in range(heads)]
    features = layer.value.kernel.shape[0]
    value = layer.value.kernel[...].reshape(features, layer.key_value_heads, -1).transpose(1, 0, 2)[jnp.array(key_head)]
    bias = _bias(layer.value).reshape(layer.key_value_heads, -1)[jnp.array(key_head)]
    # The rows of a pattern sum to one, and to less where a head may attend to nothing.
    through = jnp.einsum("hqk,hd->qhd", pattern, bias).reshape(tokens, -1)
    offset = through @ layer.output.kernel[...] + _bias(layer.output)
    return DenseAffine(attention(pattern, value, output), offset.reshape(-1))


class BlockMatrices(NamedTuple):
    """The parts of a block, each as a matrix and an offset on `vec(x)`.

    Args:
        attention: `A x + a`, with the norm of its output and the block's scale where there are any.
        norm_1: `D1 x + d1`; the identity without a norm.
        norm_2: `D2 x + d2`.
        inner: the MLP's first layer, `F1 x + f1`.
        outer: its second, `F2 x + f2`, likewise.
        gate: the factor of the activations of a gated MLP.
    """

    attention: DenseAffine
    norm_1: DenseAffine
    norm_2: DenseAffine
    inner: DenseAffine
    outer: DenseAffine
    gate: Float[Array, "neurons"] | None


def parts_of(block: Any, held: Held) -> BlockMatrices:
    """Compute the parts of a block from its weights and held values."""
    if type(block) is not Block:
        raise _unknown("block", block, "Block")
    mlp: Any = block.mlp
    if type(mlp) not in (MLP, GatedMLP):
        raise _unknown("MLP", mlp, "MLP and GatedMLP")
    tokens = _value(held, "attention.pattern").shape[-1]
    mixed = _attention(block.attention, held)
    mixed = _norm(block.attention_norm, "attention_norm", held, mixed, tokens).after(mixed).times(block.scale)
    outer = _norm(block.mlp_norm, "mlp_norm", held, mixed, tokens).after(_linear(mlp.output, tokens))
    return BlockMatrices(
        mixed,
        _norm(block.norm_1, "norm_1", held, mixed, tokens),
        _norm(block.norm_2, "norm_2", held, mixed, tokens),
        _linear(mlp.input, tokens),
        outer.times(block.scale),
        _value(held, "mlp.factor").reshape(-1) if type(mlp) is GatedMLP else None,
    )


def residual_term(block: Any, held: Held) -> ResidualTerm:
    """Compute a block's residual term from its weights and held values."""
    # | block | `W_{i,1}` | `W_{i,2}` | `W_{i,3}` |
    # |---|---|---|---|
    # | paper (Eq. 30) | `A D1` | `W2 D2 A D1` | `W3` |
    # | pre-norm | `I + A D1` | `W2 D2 (I + A D1)` | `W3` |
    # | post-norm | `D2 D1 (I + A)` | `W2 D1 (I + A)` | `D2 W3` |
    # | parallel | `I + A D1` | `W2 D2` | `W3` |
    # The papers' blocks have no norms, `D1 = D2 = I`; theirs with an attention residual is then the row "pre-norm". A
    # gated MLP has the dynamic outer weight `W3 diag(u)`.
    mixed, norm_1, norm_2, inner, (outer, offset), gate = parts_of(block, held)
    outer = outer if gate is None else outer * gate
    identity = DenseAffine(jnp.eye(len(offset), dtype=offset.dtype), jnp.zeros_like(offset))
    bias = DenseAffine(jnp.zeros_like(identity.matrix), offset)
    match block.arrangement:
        case "paper":
            path = mixed.after(norm_1)
            return _term(path.plus(bias), inner.after(norm_2).after(path), outer)
        case "pre-norm":
            path = identity.plus(mixed.after(norm_1))
            return _term(path.plus(bias), inner.after(norm_2).after(path), outer)
        case "post-norm":
            path = norm_1.after(identity.plus(mixed))
            return _term(norm_2.after(path.plus(bias)), inner.after(path), norm_2.matrix @ outer)
        case "parallel":
            path = identity.plus(mixed.after(norm_1))
            return _term(path.plus(bias), inner.after(norm_2), outer)
        case unknown:
            raise DuatError(f"the table of block types has no arrangement {unknown!r}: unroll the function itself")


def residual_terms(stack: Stack, held: Sequence[Held]) -> list[ResidualTerm]:
    """Compute the residual term of every block of a stack from its weights and held values."""
    if type(stack) is not Stack:
        raise _unknown("stack", stack, "Stack")
    if len(held) != len(stack.blocks):
        raise DuatError(f"the stack has {len(stack.blocks)} blocks, but there are held values for {len(held)}")
    return [residual_term(block, values) for block, values in zip(stack.blocks, held, strict=True)]
