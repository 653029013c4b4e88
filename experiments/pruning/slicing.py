"""Slicing of the residual stream: it is rotated to its principal directions, and the smallest of these are removed.

Source: Ashkboos et al., "SliceGPT: Compress Large Language Models by Deleting Rows and Columns", 2024, Sections 3.2 to
3.4, written from the paper's definitions.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import DuatError
from duat_jax.models import layer_parts
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import Linear, product
from duat_jax.nn.stack import Stack
from duat_jax.pruning.calibration import in_batches

Rotations = Sequence[Float[np.ndarray, "features features"]]
"""The orthogonal matrix `Q` of each norm, in their order: two of every layer, and the last one."""


class SlicedBlock(nnx.Module):
    """A pre-norm layer whose stream changes its basis on its way past attention and MLP.

    Args:
        block: the attention, the MLP and the norms, in the sliced bases.
        attention_turn: from the basis before the attention to the one after it.
        mlp_turn: the same of the MLP.
    """

    def __init__(
        self,
        block: Any,
        attention_turn: Float[Array, "features features"],
        mlp_turn: Float[Array, "features features"],
    ) -> None:
        self.block = block
        self.attention_turn, self.mlp_turn = nnx.Param(attention_turn), nnx.Param(mlp_turn)

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Run the layer."""
        block = self.block
        x = product(x, self.attention_turn[...]) + block.attention(block.norm_1(x), mask)
        return product(x, self.mlp_turn[...]) + block.mlp(block.norm_2(x))


def _require_sliceable(model: Transformer) -> None:
    """Raise an error if the model isn't of the kinds whose norms commute with rotations once their means are folded."""
    config = model.config
    plain = all(
        (block.arrangement, block.attention) == ("pre-norm", "standard")
        and block.mlp in ("plain", "gated")
        and block.norm in ("layer", "rms")
        and block.norm_weight_offset == 0
        and block.norm_1
        and block.norm_2
        and not block.output_norms
        and block.residual_scale == 1
        for block in config.blocks
    )
    if not plain or not config.final_norm or config.embedding_norm or config.segments or config.head.bias:
        raise DuatError("only models of GPT-2's and Llama's kinds are sliced here: pre-norm, with one MLP in a layer")


def _is_centred(model: Transformer) -> bool:
    """Return whether the norms subtract means, as a LayerNorm does."""
    return model.config.blocks[0].norm == "layer"


def _blocks(model: Transformer) -> list[Any]:
    """Return the blocks, whose parts `_require_sliceable` knows."""
    return list(layer_parts.blocks(model))


def _norms(model: Transformer) -> list[Any]:
    """Return the norms in their order: two of every layer, and the last one."""
    return [norm for block in _blocks(model) for norm in (block.norm_1, block.norm_2)] + [model.final_norm]


@jax.jit
def _second_moments(model: Transformer, ids: Int[Array, "windows tokens"]) -> list[Array]:
    """Return `Σ X Xᵀ` of what every norm returns before its weight and offset, over all tokens."""

    def products(x: Array) -> Array:
        x = x - x.mean(-1, keepdims=True) if _is_centred(model) else x
        x = (x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + norms[0].epsilon)).reshape(-1, x.shape[-1])
        return x.T @ x

    norms, found = _norms(model), []
    x = model.embed(ids[:, :-1])
    for block in _blocks(model):
        found.append(products(x))
        x = x + block.attention(block.norm_1(x))
        found.append(products(x))
        x = x + block.mlp(block.norm_2(x))
    return [*found, products(x)]


def principal_rotations(
    model: Transformer, ids: Int[np.ndarray, "windows tokens"], *, shared: bool = False
) -> Rotations:
    """Return the principal directions of what every norm returns on calibration text, the largest first."""
    _require_sliceable(model)
    moments = in_batches(partial(_second_moments, model), ids)
    if shared:
        moments = [np.sum(moments, 0)] * len(moments)
    return [np.linalg.eigh(moment)[1][:, ::-1] for moment in moments]


def random_rotation(model: Transformer, seed: int) -> Rotations:
    """Return one random orthogonal matrix for all norms."""
    features = model.config.features
    q = np.linalg.qr(np.random.default_rng(seed).standard_normal((features, features)))[0]
    return [q] * (2 * model.config.layers + 1)


def sliced(model: Transformer, rotations: Rotations, features: int) -> Transformer:
    """Return a model whose stream keeps the first directions of each rotation; with all it is the same function."""
    # Weights and offsets of the norms go into the maps after them, the subtraction of means, which an RMSNorm doesn't
    # have, into those before them; the norms then divide by the root mean square alone, which no rotation changes.
    # Where all rotations are one, layers need no change of basis and stay plain blocks.
    _require_sliceable(model)
    whole = model.config.features
    kept = [np.asarray(q, np.float64)[:, :features] for q in rotations]
    centring = np.eye(whole) - _is_centred(model) / whole
    blocks = tuple(
        replace(
            block,
            features=features,
            head_features=block.head_features or whole // block.heads,
            norm="rms",
            epsilon=block.epsilon * whole / features,
        )
        for block in model.config.blocks
    )
    head = replace(model.config.head, tied=False, bias=_is_centred(model))
    smaller = Transformer(replace(model.config, blocks=blocks, head=head), dtype=jnp.float32, rngs=None)
    for norm in _norms(smaller):
        # The root mean square is that of fewer directions: as in the paper, their sum is divided by all.
        _write(norm.scale, np.full(features, np.sqrt(whole / features)))

    def reads(new: Linear, old: Linear, norm: Any, basis: np.ndarray) -> None:
        kernel, scale = _double(old.kernel), _double(norm.scale)
        _write(new.kernel, basis.T @ (scale[:, None] * kernel))
        if old.bias is not None:
            _write(new.bias, _double(old.bias) + (_double(norm.bias) @ kernel if _is_centred(model) else 0))

    def writes(new: Linear, old: Linear, basis: np.ndarray) -> None:
        _write(new.kernel, _double(old.kernel) @ centring @ basis)
        if old.bias is not None:
            _write(new.bias, _double(old.bias) @ centring @ basis)

    for i, (new, old) in enumerate(zip(_blocks(smaller), _blocks(model), strict=True)):
        before, between, after = kept[2 * i : 2 * i + 3]
        for name in ("query", "key", "value"):
            reads(getattr(new.attention, name), getattr(old.attention, name), old.norm_1, before)
        writes(new.attention.output, old.attention.output, between)
        for name in ("input", "factor") if hasattr(old.mlp, "factor") else ("input",):
            reads(getattr(new.mlp, name), getattr(old.mlp, name), old.norm_2, between)
        writes(new.mlp.output, old.mlp.output, after)
    for table in ("token", "position"):
        if (old_rows := getattr(model.embedding, table, None)) is not None:
            _write(getattr(smaller.embedding, table), _double(old_rows) @ centring @ kept[0])
    rows, last = _double(model.unembedding), _norms(model)[-1]
    _write(smaller.head.unembedding, rows * _double(last.scale) @ kept[-1])
    if _is_centred(model):
        _write(smaller.head.bias, rows @ _double(last.bias))
    if any(basis is not kept[0] and not np.array_equal(basis, kept[0]) for basis in kept):
        turns = [jnp.asarray(a.T @ b, jnp.float32) for a, b in pairwise(kept)]
        smaller.stack = Stack(SlicedBlock(block, *turns[2 * i : 2 * i + 2]) for i, block in enumerate(_blocks(smaller)))
    return smaller


def _double(parameter: Any) -> np.ndarray:
    return np.asarray(parameter[...], np.float64)


def _write(parameter: Any, values: np.ndarray) -> None:
    assert parameter.shape == values.shape
    parameter.set_value(jnp.asarray(values, parameter.dtype))


def largest_within(size: Callable[[int], int], limit: float, largest: int) -> int:
    """Return the largest number of directions whose sliced layers are within a number of parameters."""
    return max(n for n in range(1, largest + 1) if size(n) <= limit)
