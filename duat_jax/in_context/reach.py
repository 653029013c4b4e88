"""Density and reach of attention's matrix `W'_HVO`, computed without building the matrix."""

from functools import partial
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.errors import InvalidInput
from duat_jax.models.ids import require_ids
from duat_jax.models.layer_parts import blocks
from duat_jax.models.sites import KEYS, PATTERN, QUERIES
from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import LONGEST_STORED, Attention
from duat_jax.nn.block import Block
from duat_jax.nn.linear import PRECISION, alike, computed_in
from duat_jax.nn.norm import LayerNorm, RMSNorm
from duat_jax.nn.pattern import attention_pattern
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds
from duat_jax.transform.stored_program import stored_program

Weight = Literal["written", "map"]
"""The weight of a pair of tokens: the norm of the vector that attention writes between them, or of the map alone."""


class Reach(NamedTuple):
    """Density and reach of attention's matrix `W'_HVO = Σ_h H_h ⊗ (W_{V,h} W_{O,h})ᵀ`, by layer.

    Args:
        density: the share of its entries that aren't zero, `[layers]`.
        norms: the weight of each token (key) at each output position (query), `[layers, queries, keys]`: the norm of
            the vector that attention writes from one to the other, unless another weight was chosen.
        along: the share of each token's vector along the sum of them all, which sums to one and may be negative,
            `[layers, queries, keys]`.
    """

    density: Float[np.ndarray, "layers"]
    norms: Float[np.ndarray, "layers queries keys"]
    along: Float[np.ndarray, "layers queries keys"]

    @property
    def shares(self) -> Float[np.ndarray, "layers queries keys"]:
        """Each token's share of an output position's squared norms."""
        squares = self.norms.astype(np.float64) ** 2
        total = squares.sum(-1, keepdims=True)
        return squares / np.where(total == 0, 1, total)

    @property
    def distance(self) -> Float[np.ndarray, "layers queries"]:
        """Mean distance in tokens from which each output position reads, weighted by the shares."""
        return (self.shares * _distances(self.norms.shape[-1])).sum(-1)

    @property
    def tokens_read(self) -> Float[np.ndarray, "layers queries"]:
        """The number of tokens of equal shares with the same concentration: `1 / Σ share²`."""
        squares = (self.shares**2).sum(-1)
        return np.where(squares == 0, 0, 1 / np.where(squares == 0, 1, squares))

    def beyond(self, kernel: int) -> Float[np.ndarray, "layers queries"]:
        """Return the share of the tokens at a distance of at least `kernel`, before the position or after it.

        With a causal mask these are the tokens for which a convolution over the last `kernel` tokens, the position's
        own included, has no weight; without a mask, a convolution over `2 kernel − 1` tokens around the position.

        Args:
            kernel: the distance in tokens.
        """
        return (self.shares * (_distances(self.norms.shape[-1]) >= kernel)).sum(-1)


def _distances(tokens: int) -> Int[np.ndarray, "queries keys"]:
    places = np.arange(tokens)
    return np.abs(places[:, None] - places)


def block_norms(
    pattern: Float[Array, "heads queries keys"],
    value: Float[Array, "heads features head_features"],
    output: Float[Array, "heads head_features features"],
) -> Float[Array, "queries keys"]:
    """Return `‖Σ_h H_h[q, k] W_{V,h} W_{O,h}‖_F` of every pair of tokens.

    Example:
        >>> import jax.numpy as jnp
        >>> block_norms(jnp.ones((1, 1, 1)), 3 * jnp.eye(2)[None], jnp.eye(2)[None]).tolist()
        [[4.2426...]]
    """
    # `‖·‖² = Σ_{g,h} H_g H_h ⟨G_g, G_h⟩` with `G_h = W_{V,h} W_{O,h}`, and `⟨G_g, G_h⟩ = ⟨V_gᵀ V_h, O_g O_hᵀ⟩`.
    values = jnp.einsum("gma,hmb->ghab", value, value, precision=PRECISION)
    outputs = jnp.einsum("gam,hbm->ghab", output, output, precision=PRECISION)
    products = (values * outputs).sum((-2, -1))
    squares = jnp.einsum("gqk,gh,hqk->qk", pattern, products, pattern, precision=PRECISION)
    return jnp.sqrt(jnp.maximum(squares, 0))


class Written(NamedTuple):
    """Norms and shares of the vectors that attention writes from each token to each position.

    Args:
        norms: the norm of the vector, `[queries, keys]`.
        along: the vector's share along the sum over all tokens, `[queries, keys]`.
    """

    norms: Float[Array, "queries keys"]
    along: Float[Array, "queries keys"]


def written(pattern: Float[Array, "heads queries keys"], vectors: Float[Array, "heads keys features"]) -> Written:
    """Compute norms and shares of the vectors `w[q, k] = Σ_h H_h[q, k] v_h(k)` without storing them.

    Example:
        >>> import jax.numpy as jnp
        >>> vectors = written(jnp.array([[[0.5, 0.5]]]), jnp.array([[[6.0, 0.0], [0.0, 8.0]]]))
        >>> vectors.norms.tolist(), [round(share, 2) for share in vectors.along[0].tolist()]
        ([[3.0, 4.0]], [0.36, 0.64])
    """
    # `‖w[q, k]‖² = Σ_{g,h} H_g H_h ⟨v_g(k), v_h(k)⟩`, and along their sum `⟨w[q, k], w_q⟩ / ‖w_q‖²` with `w_q = Σ_k
    # w[q, k]`.
    products = jnp.einsum("gkf,hkf->kgh", vectors, vectors, precision=PRECISION)
    squares = jnp.einsum("gqk,kgh,hqk->qk", pattern, products, pattern, precision=PRECISION)
    total = jnp.einsum("hqk,hkf->qf", pattern, vectors, precision=PRECISION)
    size = (total * total).sum(-1, keepdims=True)
    parts = jnp.einsum("hqk,hkf,qf->qk", pattern, vectors, total, precision=PRECISION)
    return Written(jnp.sqrt(jnp.maximum(squares, 0)), parts / jnp.where(size == 0, 1, size))


def density(
    pattern: Float[np.ndarray, "heads queries keys"],
    value: Float[np.ndarray, "heads features head_features"],
    output: Float[np.ndarray, "heads head_features features"],
) -> float:
    """Return the share of the entries of `Σ_h H_h ⊗ (W_{V,h} W_{O,h})ᵀ` that aren't zero.

    Example:
        >>> import numpy as np
        >>> density(np.tril(np.ones((1, 2, 2))), np.ones((1, 3, 1)), np.ones((1, 1, 3)))
        0.75
    """
    # An entry counts as nonzero if any head that connects the two tokens has one there; cancellation between heads is
    # ignored.
    heads, queries, keys = pattern.shape
    supports = np.stack([np.einsum("ma,an->mn", v, o) != 0 for v, o in zip(value, output, strict=True)])
    joining, counts = np.unique((pattern != 0).reshape(heads, -1), axis=1, return_counts=True)
    entries = sum(int(n) * supports[subset].any(0).sum() for subset, n in zip(joining.T, counts, strict=True))
    return float(entries / (queries * keys * supports[0].size))


def measure_reach(
    model: Transformer, ids: Int[Array, "tokens"], *, masked: bool = True, weight: Weight = "written"
) -> Reach:
    """Compute the density of every layer's attention on a text, and how far back each output position reads.

    A pair of tokens is weighted by the norm of the vector that attention writes from one to the other: pattern, norm,
    values with their bias, and output. The norm of the map alone depends neither on the
    direction of the stream nor on the cancellation of a large stream by the small scale of its norm.

    Args:
        model: a model whose layers have standard attention.
        ids: token ids, `[tokens]`.
        masked: whether the model's own mask is applied; without it, all queries and keys are paired.
        weight: `"written"`, or for comparison `"map"`: `‖Σ_h H_h[q, k] W_{V,h} W_{O,h}‖`.

    Raises:
        InvalidInput: if a layer has no standard attention, an id is outside the vocabulary, or the text is too long to
            store its patterns.

    Example:
        >>> import duat_jax as duat
        >>> import jax.numpy as jnp
        >>> result = measure_reach(duat.load(), jnp.array([5, 6, 7, 8]))
        >>> result.density.tolist()[0], result.norms.shape
        (0.625, (6, 4, 4))

    Source: Wang & Li, Eq. 9 and Appendix C; Kobayashi et al., 2020.
    """
    standard = _standard(model)
    if len(standard) < len(model.stack.blocks):
        raise InvalidInput("the reach is defined for standard attention: give a model that has it in every layer")
    if len(ids) > LONGEST_STORED:
        raise InvalidInput(f"the text has {len(ids)} tokens: give at most {LONGEST_STORED}, whose patterns are stored")
    require_ids(model.config, {"the text": ids})
    layers = _layers(model, jnp.asarray(ids), masked, weight)
    weights = [weights_of(attention) for _, attention in standard]
    dense = [density(*on_host((pattern, *pair))) for (pattern, _), pair in zip(layers, weights, strict=True)]
    norms, along = (np.stack(arrays) for arrays in zip(*(parts for _, parts in layers), strict=True))
    return Reach(np.array(dense), norms, along)


def _standard(model: Transformer) -> list[tuple[Block, Attention]]:
    """Return the blocks with standard attention, and their attention."""
    return [(block, block.attention) for block in blocks(model) if isinstance(block.attention, Attention)]


def weights_of(attention: Attention) -> tuple[Array, Array]:
    """Return `W_{V,h}` and `W_{O,h}` of every query head."""
    value, output = (
        kernel.astype(computed_in(kernel.dtype))
        for kernel in (attention.value.kernel[...], attention.output.kernel[...])
    )
    return _of_heads(attention, value), output.reshape(attention.heads, -1, output.shape[-1])


def _of_heads(attention: Attention, rows: Float[Array, "rows width"]) -> Float[Array, "heads rows head_features"]:
    """Split values by query head; neighbouring query heads share a value head."""
    values = rows.reshape(len(rows), attention.key_value_heads, -1).swapaxes(0, 1)
    return jnp.repeat(values, attention.heads // attention.key_value_heads, axis=0)


def _linear(norm: Any, rows: Float[Array, "... features"]) -> Float[Array, "... features"]:
    """Apply a norm without its scale and its offset."""
    if isinstance(norm, LayerNorm):
        return (rows - rows.mean(-1, keepdims=True)) * alike(norm.scale[...], rows)
    return rows * (norm.weight_offset + alike(norm.scale[...], rows)) if isinstance(norm, RMSNorm) else rows


@partial(stored_program, static_argnames=("masked", "weight"))
def _layers(model: Transformer, ids: Array, masked: bool, weight: Weight) -> list[tuple[Array, Written]]:
    """Return every layer's patterns, and the norms and shares of the vectors it writes."""
    recording = record_kinds(model.states, model.embed(ids), (marks.HOLD, marks.POINT, marks.STREAM))

    def of_layers(kind: str, name: str) -> list[Array]:
        return [recording.seen[site] for site in recording.program.of_kind(kind) if site.key.name == name]

    patterns = of_layers(marks.HOLD, PATTERN)
    if not masked:
        both = of_layers(marks.POINT, QUERIES), of_layers(marks.POINT, KEYS)
        patterns = [_unmasked(attention, *pair) for (_, attention), *pair in zip(_standard(model), *both, strict=True)]
    streams = [recording.seen[site] for site in recording.program.of_kind(marks.STREAM)]
    return [
        (pattern, weigh(block, pattern, x, weight))
        for (block, _), pattern, x in zip(_standard(model), patterns, streams[:-1], strict=True)
    ]


def weigh(
    block: Block,
    pattern: Float[Array, "heads queries keys"],
    x: Float[Array, "keys features"],
    weight: Weight = "written",
) -> Written:
    """Compute the weights of all pairs of a query and a key in a block with standard attention."""
    attention: Any = block.attention
    value, output = weights_of(attention)
    norm = None if block.arrangement == "post-norm" else block.norm_1
    values = _of_heads(attention, attention.value(x if norm is None else norm(x)))
    vectors = jnp.einsum("hkd,hdf->hkf", values, output, precision=PRECISION)
    result = written(pattern, _linear(block.attention_norm, vectors))
    if weight == "written":
        return result
    return result._replace(norms=block_norms(pattern, value, _linear(block.attention_norm, output)))


def _unmasked(attention: Attention, queries: Array, keys: Array) -> Float[Array, "heads queries keys"]:
    keys = jnp.repeat(keys, attention.heads // attention.key_value_heads, axis=-2)
    sinks = None if attention.sinks is None else attention.sinks[...]
    return attention_pattern(queries, keys, attention.scale, None, attention.cap, sinks)
