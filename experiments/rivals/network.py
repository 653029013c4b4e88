"""A pre-norm Transformer written out, whose nonlinear parts and products are given: for other ways back than `grad`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.attribution.unit_values import Scores
from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import Attention
from duat_jax.nn.config import BlockConfig
from duat_jax.nn.linear import PRECISION, alike
from duat_jax.nn.mlp import ACTIVATIONS, MLP, GatedMLP
from duat_jax.nn.norm import LayerNorm
from duat_jax.nn.pattern import attention_mask


class Rules(NamedTuple):
    """The parts of a network that aren't linear, with their ways back.

    Args:
        activation: from a name in `ACTIVATIONS` to an elementwise function.
        scale: from a token's centred features and the norm's epsilon to the factor that normalises them.
        softmax: over the last axis.
        scores: the product of queries and keys, `[..., heads, queries, keys]`.
        mixed: the product of pattern and values, `[..., queries, heads, head_features]`.
        product: the product of a token's features and the factor that normalises them.
        gated: the product of the two factors of a gated MLP's neurons.
    """

    activation: Callable[[str], Callable[[Array], Array]]
    scale: Callable[[Array, float], Array]
    softmax: Callable[[Array], Array]
    scores: Callable[[Array, Array], Array]
    mixed: Callable[[Array, Array], Array]
    product: Callable[[Array, Array], Array]
    gated: Callable[[Array, Array], Array]


def scale(x: Array, epsilon: float) -> Array:
    """Return `1/√(mean(x²) + ε)` of each token."""
    return jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon)


def scores(queries: Array, keys: Array) -> Array:
    """Return the products of queries and keys."""
    return jnp.einsum("...qhd,...khd->...hqk", queries, keys, precision=PRECISION)


def mixed(pattern: Array, values: Array) -> Array:
    """Return the heads' outputs."""
    return jnp.einsum("...hqk,...khd->...qhd", pattern, values, precision=PRECISION)


PLAIN = Rules(ACTIVATIONS.__getitem__, scale, jax.nn.softmax, scores, mixed, jnp.multiply, jnp.multiply)
"""The model itself, with its gradient."""

Added = tuple[Float[Array, "layers ... tokens neurons"], Float[Array, "layers ... tokens heads head_features"]]
"""Summands of every neuron and of every head's output."""


def nothing(model: Transformer, x: Float[Array, "... tokens features"]) -> Added:
    """Return zeros to be added."""
    block, before = model.config.blocks[0], (model.config.layers, *x.shape[:-1])
    first: Any = model.stack.blocks[0]
    attention = first.attention
    of_heads = (attention.heads, attention.head_features)
    return jnp.zeros((*before, block.neurons), x.dtype), jnp.zeros((*before, *of_heads), x.dtype)


def run(
    model: Transformer, rules: Rules, x: Float[Array, "... tokens features"], added: Added
) -> tuple[Float[Array, "... tokens features"], Added]:
    """Return the states from which logits are read, and the values of all neurons and heads."""
    blocks: list[Any] = list(model.stack.blocks)
    if any(map(_is_other, blocks, model.config.blocks)):
        raise ValueError("the network is one of plain pre-norm blocks: give a model such as GPT-2 or Llama")
    x, seen = model.first(x), []
    for block, neurons, heads in zip(blocks, *added, strict=True):
        y, head_values = _attention(block.attention, rules, normed(block.norm_1, rules, x), heads)
        x = x + block.scale * y
        y, neuron_values = mlp(block.mlp, rules, normed(block.norm_2, rules, x), neurons)
        x = x + block.scale * y
        seen.append((neuron_values, head_values))
    neurons, heads = (jnp.stack(values) for values in zip(*seen, strict=True))
    return model.head.states(normed(model.final_norm, rules, x)), (neurons, heads)


def _is_other(block: Any, config: BlockConfig) -> bool:
    attention = block.attention
    if not isinstance(attention, Attention) or config.arrangement != "pre-norm" or config.output_norms:
        return True
    parts = attention.query_norm, attention.key_norm, attention.cap, attention.sinks
    return any(part is not None for part in parts) or not isinstance(block.mlp, MLP | GatedMLP)


def normed(norm: Any, rules: Rules, x: Array) -> Array:
    """Return what a norm makes of features."""
    if norm is None:
        return x
    if isinstance(norm, LayerNorm):
        x = x - x.mean(-1, keepdims=True)
        y = rules.product(x, rules.scale(x, norm.epsilon)) * alike(norm.scale[...], x)
        return y if norm.bias is None else y + alike(norm.bias[...], x)
    return rules.product(x, rules.scale(x, norm.epsilon)) * (norm.weight_offset + alike(norm.scale[...], x))


def _attention(attention: Attention, rules: Rules, x: Array, added: Array) -> tuple[Array, Array]:
    queries = attention._heads(attention.query(x), None, None)
    keys = attention._heads(attention.key(x), None, None)
    values = attention.value(x).reshape(*x.shape[:-1], -1, attention.head_features)
    keys, values = (jnp.repeat(z, attention.heads // attention.key_value_heads, axis=-2) for z in (keys, values))
    visible = attention_mask(x.shape[-2], causal=attention.causal, window=attention.window)
    heads = mixed_by(rules, queries, keys, values, attention.scale, visible) + added
    return attention.output(heads.reshape(*x.shape[:-1], -1)), heads


def mixed_by(rules: Rules, queries: Array, keys: Array, values: Array, scale: float, visible: Array | None) -> Array:
    """Return the heads' outputs from queries, keys and values."""
    products = scale * rules.scores(queries, keys)
    if visible is not None:
        products = jnp.where(visible, products, jnp.finfo(queries.dtype).min / 2)
    return rules.mixed(rules.softmax(products), values)


def mlp(mlp: Any, rules: Rules, x: Array, added: Array | float) -> tuple[Array, Array]:
    """Return what an MLP writes, and the values of its neurons."""
    neurons = rules.activation(mlp.activation)(mlp.input(x))
    if isinstance(mlp, GatedMLP):
        neurons = rules.gated(neurons, mlp.factor(x))
    neurons = neurons + added
    return mlp.output(neurons), neurons


def of_units(coefficients: Added, change: Added) -> Scores:
    """Return the scores of neurons and heads from coefficients and changes of their entries."""
    neurons, heads = jax.tree.map(jnp.multiply, coefficients, change)
    return Scores(neurons, heads.sum(-1), None)
