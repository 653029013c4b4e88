"""Language models of one size whose tokens are mixed in different ways, and their training."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int

from duat_jax.evaluation.running_text import token_losses
from duat_jax.models.config import Config, Head
from duat_jax.models.layer_parts import blocks
from duat_jax.models.transformer import Transformer
from duat_jax.nn import BlockConfig, Rotary, rotary_frequencies
from duat_jax.nn.block import Part
from duat_jax.papers import (
    DistancePattern,
    FeatureConvolution,
    GroupedAttention,
    NoMixing,
    TokenConvolution,
)
from training.train import optimizer

FULL, WINDOW, SHIFTED = "full attention", "attention, window of 8", "attention, shifted groups of 16"
TOKENS, FEATURES, PATTERN = "convolution of 8 tokens", "convolution along the features", "fixed pattern of the distance"
NONE = "no mixing"
KINDS = (FULL, WINDOW, SHIFTED, TOKENS, FEATURES, PATTERN, NONE)
REACH = 8
"""Tokens that a window and a convolution see in one layer, and half a group."""
NEIGHBOURS = 3
"""Neighbouring features that the convolution along the features sees."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a network.

    Args:
        kind: how its tokens are mixed, a name in `KINDS`.
        layers: number of blocks.
        features: width of the residual stream.
        neurons: hidden units of a block's gated MLP.
        tokens: its longest text.
        vocab: size of the vocabulary.
        heads: of its attention.
    """

    kind: str
    layers: int
    features: int
    neurons: int
    tokens: int
    vocab: int
    heads: int = 4


def _mixer(sizes: Sizes, rngs: nnx.Rngs | None) -> Part:
    """Return what stands in the place of attention."""
    if sizes.kind == TOKENS:
        return TokenConvolution(sizes.features, REACH, rngs=rngs)
    if sizes.kind == FEATURES:
        return FeatureConvolution(sizes.tokens, NEIGHBOURS, rngs=rngs)
    if sizes.kind == PATTERN:
        return DistancePattern(sizes.tokens, sizes.features, sizes.heads, rngs=rngs)
    return NoMixing()


def network(sizes: Sizes, rngs: nnx.Rngs | None) -> Transformer:
    """Return a language model as Llama's, with rotary positions where there is attention, and a tied read-out."""
    block = BlockConfig(
        arrangement="pre-norm",
        features=sizes.features,
        heads=sizes.heads,
        neurons=sizes.neurons,
        window=REACH if sizes.kind == WINDOW else None,
        rotary=Rotary(rotary_frequencies(sizes.features // sizes.heads)),
        attention_bias=False,
        output_bias=False,
        mlp="gated",
        mlp_bias=False,
        activation="silu",
        norm="rms",
    )
    config = Config(
        family="llama",
        blocks=(block,) * sizes.layers,
        vocab=sizes.vocab,
        positions=sizes.tokens,
        position_embedding=False,
        head=Head(kind="next token", outputs=sizes.vocab, tied=True),
    )
    model = Transformer(config, rngs=rngs)
    if sizes.kind == SHIFTED:
        return in_groups(model, 2 * REACH, shifted=True)
    if sizes.kind not in (FULL, WINDOW):
        for layer in blocks(model):
            layer.attention = _mixer(sizes, rngs)
    return model


def in_groups(model: Transformer, group: int, *, shifted: bool) -> Transformer:
    """Return a model of the same weights that attends within groups of tokens."""
    model = jax.tree.map(lambda leaf: leaf, model)  # a copy, whose blocks are changed
    for layer in blocks(model):
        attention: Any = layer.attention
        layer.attention = GroupedAttention(attention, group, shifted=shifted)
    return model


def interpolated(model: Transformer, factor: float) -> Transformer:
    """Return a model of the same weights whose rotary positions are closer together by a factor."""
    # So a text that is longer by this factor has no distance beyond those that the model was trained on.
    model = jax.tree.map(lambda leaf: leaf, model)  # a copy, whose blocks are changed
    for layer in blocks(model):
        attention: Any = layer.attention
        frequencies = tuple(frequency / factor for frequency in attention.rotary.frequencies)
        attention.rotary = replace(attention.rotary, frequencies=frequencies)
    return model


def count(sizes: Sizes) -> int:
    """Return the number of a network's parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(partial(network, sizes, None))))


def fit(
    loss: Callable[[Any, Array], Array], weights: Any, ids: Int[Array, "steps batch tokens"], rule: Any
) -> tuple[Any, Float[Array, "steps"]]:
    """Minimise the mean loss of texts, in one scan over the steps."""

    def step(carry: tuple[Any, Any], texts: Array) -> tuple[tuple[Any, Any], Array]:
        weights, state = carry
        value, gradient = jax.value_and_grad(loss)(weights, texts)
        updates, state = rule.update(gradient, state, weights)
        return (optax.apply_updates(weights, updates), state), value

    (weights, _), losses = jax.lax.scan(step, (weights, rule.init(weights)), ids)
    return weights, losses


@jax.jit
def train(
    model: Transformer, ids: Int[Array, "steps batch tokens"], rate: Float[Array, ""]
) -> tuple[Transformer, Float[Array, "steps"]]:
    """Train a model by the embedded model's rule: Muon for the matrices inside the blocks, Adam for everything else."""
    rule = optax.chain(optimizer(len(ids)), optax.scale(rate))
    return fit(lambda model, texts: token_losses(model, texts).mean(), model, ids, rule)


def losses_of(
    model: Transformer, ids: Int[np.ndarray, "texts tokens"], batch: int = 16
) -> Float[np.ndarray, "texts predicted"]:
    """Return the loss of every token but the first of each text, a batch at a time."""
    parts = [token_losses(model, jnp.asarray(part)) for part in ids.reshape(-1, batch, ids.shape[1])]
    return np.concatenate([np.asarray(part) for part in parts])
