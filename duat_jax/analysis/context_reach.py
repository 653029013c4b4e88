"""How dense attention's matrix `W'_HVO` is, and how far back each output position reads: the matrix is never built."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from duat_jax.errors import BadText
from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import LONGEST_STORED, Attention
from duat_jax.nn.block import Block
from duat_jax.nn.linear import PRECISION
from duat_jax.nn.pattern import attention_pattern
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds


class Reach(NamedTuple):
    """What attention's matrix `W'_HVO = Σ_h H_h ⊗ (W_{V,h} W_{O,h})ᵀ` joins on a text, layer by layer.

    Args:
        density: the share of its entries that aren't zero, `[layers]`.
        norms: the norm of the block from each token (key) to each output position (query), `[layers, queries, keys]`.
    """

    density: Float[np.ndarray, "layers"]
    norms: Float[np.ndarray, "layers queries keys"]

    @property
    def shares(self) -> Float[np.ndarray, "layers queries keys"]:
        """Of each output position's squared norm, the share of every token."""
        squares = self.norms.astype(np.float64) ** 2
        total = squares.sum(-1, keepdims=True)
        return squares / np.where(total == 0, 1, total)

    @property
    def distance(self) -> Float[np.ndarray, "layers queries"]:
        """How many tokens away each output position reads, the mean over its shares."""
        return (self.shares * _distances(self.norms.shape[-1])).sum(-1)

    @property
    def tokens_read(self) -> Float[np.ndarray, "layers queries"]:
        """As how many tokens of equal shares an output position's shares count: `1 / Σ share²`."""
        squares = (self.shares**2).sum(-1)
        return np.where(squares == 0, 0, 1 / np.where(squares == 0, 1, squares))

    def beyond(self, kernel: int) -> Float[np.ndarray, "layers queries"]:
        """Return the share that a convolution over the last tokens, the position's own included, has no weight for.

        Args:
            kernel: over how many tokens it reaches.
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

    `‖·‖² = Σ_{g,h} H_g H_h ⟨G_g, G_h⟩` with `G_h = W_{V,h} W_{O,h}`, and `⟨G_g, G_h⟩ = ⟨V_gᵀ V_h, O_g O_hᵀ⟩`.

    Args:
        pattern: `H_h`.
        value: `W_{V,h}`.
        output: `W_{O,h}`.

    Example:
        >>> import jax.numpy as jnp
        >>> block_norms(jnp.ones((1, 1, 1)), 3 * jnp.eye(2)[None], jnp.eye(2)[None]).tolist()
        [[4.2426...]]
    """
    values = jnp.einsum("gma,hmb->ghab", value, value, precision=PRECISION)
    outputs = jnp.einsum("gam,hbm->ghab", output, output, precision=PRECISION)
    products = (values * outputs).sum((-2, -1))
    squares = jnp.einsum("gqk,gh,hqk->qk", pattern, products, pattern, precision=PRECISION)
    return jnp.sqrt(jnp.maximum(squares, 0))


def density(
    pattern: Float[np.ndarray, "heads queries keys"],
    value: Float[np.ndarray, "heads features head_features"],
    output: Float[np.ndarray, "heads head_features features"],
) -> float:
    """Return the share of the entries of `Σ_h H_h ⊗ (W_{V,h} W_{O,h})ᵀ` that aren't zero.

    A block's entry isn't zero where a head that joins the two tokens has one there; that several cancel isn't expected.

    Args:
        pattern: `H_h`.
        value: `W_{V,h}`.
        output: `W_{O,h}`.

    Example:
        >>> import numpy as np
        >>> density(np.tril(np.ones((1, 2, 2))), np.ones((1, 3, 1)), np.ones((1, 1, 3)))
        0.75
    """
    heads, queries, keys = pattern.shape
    supports = np.stack([np.einsum("ma,an->mn", v, o) != 0 for v, o in zip(value, output, strict=True)])
    joining, counts = np.unique((pattern != 0).reshape(heads, -1), axis=1, return_counts=True)
    entries = sum(int(n) * supports[which].any(0).sum() for which, n in zip(joining.T, counts, strict=True))
    return float(entries / (queries * keys * supports[0].size))


def reach(model: Transformer, ids: Int[Array, "tokens"], *, masked: bool = True) -> Reach:
    """Return how dense every layer's attention is on a text, and how far back each output position reads.

    Args:
        model: a model whose layers have standard attention.
        ids: token ids, `[tokens]`.
        masked: whether the model's own mask is applied; without it, the same queries and keys meet everywhere.

    Raises:
        BadText: if the model's attention is another one, or the text is too long to store its patterns.

    Example:
        >>> import duat_jax as duat
        >>> import jax.numpy as jnp
        >>> found = reach(duat.load(), jnp.array([5, 6, 7, 8]))
        >>> found.density.tolist()[0], found.norms.shape
        (0.625, (6, 4, 4))

    Source: Wang & Li, Eq. 9 and Appendix C.
    """
    attentions = _attentions(model)
    if len(attentions) < len(model.stack.blocks):
        raise BadText("the reach is that of standard attention: give a model that has it in every layer")
    if len(ids) > LONGEST_STORED:
        raise BadText(f"the text has {len(ids)} tokens: give at most {LONGEST_STORED}, whose patterns are stored")
    weights = [_weights(attention) for attention in attentions]
    patterns = _patterns(model, jnp.asarray(ids), masked)
    norms = jnp.stack([block_norms(pattern, *pair) for pattern, pair in zip(patterns, weights, strict=True)])
    dense = [density(*jax.device_get((pattern, *pair))) for pattern, pair in zip(patterns, weights, strict=True)]
    return Reach(np.array(dense), np.asarray(norms))


def _attentions(model: Transformer) -> list[Attention]:
    blocks = [block for block in model.stack.blocks if isinstance(block, Block)]
    return [block.attention for block in blocks if isinstance(block.attention, Attention)]


def _weights(attention: Attention) -> tuple[Array, Array]:
    """Return `W_{V,h}` and `W_{O,h}` of every query head."""
    value, output = attention.value.kernel[...], attention.output.kernel[...]
    values = value.reshape(len(value), attention.key_value_heads, -1).swapaxes(0, 1)
    shared = attention.heads // attention.key_value_heads
    return jnp.repeat(values, shared, axis=0), output.reshape(attention.heads, -1, output.shape[-1])


@partial(jax.jit, static_argnames="masked")
def _patterns(model: Transformer, ids: Array, masked: bool) -> list[Array]:
    recording = record_kinds(model.states, model.embed(ids), (marks.HOLD, marks.POINT))

    def of_layers(kind: str, name: str) -> list[Array]:
        return [recording.seen[site] for site in recording.program.of_kind(kind) if site.key.name == name]

    if masked:
        return of_layers(marks.HOLD, "attention.pattern")
    found = []
    both = zip(of_layers(marks.POINT, "attention.queries"), of_layers(marks.POINT, "attention.keys"), strict=True)
    for attention, (queries, keys) in zip(_attentions(model), both, strict=True):
        keys = jnp.repeat(keys, attention.heads // attention.key_value_heads, axis=-2)
        sinks = None if attention.sinks is None else attention.sinks[...]
        found.append(attention_pattern(queries, keys, attention.scale, None, attention.cap, sinks))
    return found


def windowed(model: Transformer, kernel: int) -> Transformer:
    """Return a model that shares its weights, and whose layers see the last tokens only, as a convolution would.

    Args:
        model: a model with standard attention.
        kernel: over how many tokens each layer reaches, the position's own included.
    """
    found: Transformer = nnx.merge(*nnx.split(model))
    for attention in _attentions(found):
        attention.window = kernel if attention.window is None else min(kernel, attention.window)
    return found
