"""A Transformer as a network of edges: each query, key, value and MLP reads the sum of what earlier parts have sent.

Senders are the embeddings, every head and every MLP. Receivers are every head's query, every key and value, every MLP,
and the logits. With `h_s` sent by a sender and `c_s` what it sends on the corrupted text, a receiver `r` reads
`Σ_s c_s + M_rs (h_s - c_s)`: the model if every `M_rs` is 1, and the corrupted text's streams if every one is 0.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from duat_jax.inputs.prompts import difference_at
from duat_jax.models.config import Config
from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import Attention
from duat_jax.nn.linear import PRECISION, Linear, alike
from duat_jax.nn.pattern import attention_mask, attention_pattern
from duat_jax.nn.scanned_stack import ScannedStack
from experiments.rivals import network as written_out
from experiments.rivals.network import Rules

STANDARD = ("pre-norm", "standard", False, False)
"""Arrangement, attention, whether outputs are normalised, and whether heads may attend to nothing."""

Receive = Callable[[Float[Array, "senders tokens features"], Any], Float[Array, "receivers tokens features"]]
"""From what has been sent so far, zeros for later senders, and what is given for some receivers, to their streams."""


def edges_of(config: Config) -> Bool[np.ndarray, "receivers senders"]:
    """Return which senders each receiver reads: those before it."""
    counts, senders = [], 1
    for block in config.blocks:
        shared = block.heads if block.key_value_heads is None else block.key_value_heads
        counts += [senders] * (block.heads + 2 * shared) + [senders + block.heads]
        senders += block.heads + 1
    return np.arange(senders) < np.array([*counts, senders])[:, None]


def run(
    model: Transformer, x: Float[Array, "... tokens features"], receive: Receive, given: Any, rules: Rules | None = None
) -> tuple[Float[Array, "... features"], Float[Array, "senders ... tokens features"]]:
    """Return the state from which the next token's logits are read, and what every part has sent."""
    config, layers = model.config.blocks[0], model.config.layers
    stack = model.stack
    if (
        not isinstance(stack, ScannedStack)
        or len(stack.repeated) + len(stack.rest) > 1
        or (config.arrangement, config.attention, config.output_norms, config.sinks) != STANDARD
    ):
        raise ValueError("edges are those of equal pre-norm blocks: give a model such as GPT-2, loaded as a loop")
    structure, state = nnx.split(stack.repeated[0])
    senders = config.heads + 1
    sent = jnp.zeros((1 + layers * senders, *x.shape), x.dtype).at[0].set(model.first(x))

    def layer(sent: Array, of_layer: Any) -> tuple[Array, None]:
        number, state, given = of_layer
        block: Any = nnx.merge(structure, state)
        first = 1 + number * senders
        read = normed(block.norm_1, receive(sent, jax.tree.map(lambda rows: rows[:-1], given)))
        added = of_heads(block.attention, read, rules)
        sent = lax.dynamic_update_slice_in_dim(sent, block.scale * added, first, 0)
        read = normed(block.norm_2, receive(sent, jax.tree.map(lambda rows: rows[-1:], given)))
        added = block.mlp(read) if rules is None else written_out.mlp(block.mlp, rules, read[0], 0.0)[0][None]
        return lax.dynamic_update_slice_in_dim(sent, block.scale * added, first + senders - 1, 0), None

    def normed(norm: Any, read: Array) -> Array:
        if rules is None or norm is None:
            return read if norm is None else norm(read)
        return jax.vmap(partial(written_out.normed, norm, rules))(read)

    of_layers = jax.tree.map(lambda rows: rows[:-1].reshape(layers, -1, *rows.shape[1:]), given)
    sent, _ = lax.scan(layer, sent, (jnp.arange(layers), state, of_layers))
    last = normed(model.final_norm, receive(sent, jax.tree.map(lambda rows: rows[-1:], given)))
    return model.head.states(last[0])[..., -1, :], sent


def of_heads(
    attention: Attention, read: Float[Array, "receivers ... tokens features"], rules: Rules | None = None
) -> Float[Array, "heads ... tokens features"]:
    """Return what each head adds to the stream; the output's bias is divided evenly."""
    heads, shared, size = attention.heads, attention.key_value_heads, attention.head_features
    of_queries, of_keys, of_values = jnp.split(read, (heads, heads + shared))
    projected = [
        (_projected(linear, streams, size), norm)
        for linear, streams, norm in (
            (attention.query, of_queries, attention.query_norm),
            (attention.key, of_keys, attention.key_norm),
        )
    ]
    queries, keys = (attention._heads(y.reshape(*y.shape[:-2], -1), norm, None) for y, norm in projected)
    values = _projected(attention.value, of_values, size)
    keys, values = (jnp.repeat(each, heads // shared, axis=-2) for each in (keys, values))
    visible = attention_mask(queries.shape[-3], causal=attention.causal, window=attention.window)
    if rules is None:
        pattern = attention_pattern(queries, keys, attention.scale, visible, attention.cap, None)
        mixed = written_out.mixed(pattern, values)
    else:
        mixed = written_out.mixed_by(rules, queries, keys, values, attention.scale, visible)
    kernel = alike(attention.output.kernel[...], read).reshape(heads, size, -1)
    added = jnp.einsum("...qhf,hfd->h...qd", mixed, kernel, precision=PRECISION)
    bias = attention.output.bias
    return added if bias is None else added + alike(bias[...], read) / heads


def _projected(linear: Linear, streams: Array, size: int) -> Float[Array, "... tokens heads head_features"]:
    """Return the projection of each head's own stream."""
    kernel = alike(linear.kernel[...], streams).reshape(streams.shape[-1], -1, size)
    y = jnp.einsum("h...td,dhf->...thf", streams, kernel, precision=PRECISION)
    return y if linear.bias is None else y + alike(linear.bias[...], streams).reshape(-1, size)


def _summed(sent: Array, added: Array) -> Array:
    return sent.sum(0) + added


def sent_by(model: Transformer, x: Float[Array, "tokens features"]) -> Float[Array, "senders tokens features"]:
    """Return what every part sends on a text."""
    return run(model, x, _summed, jnp.zeros((len(edges_of(model.config)), *x.shape), x.dtype))[1]


def with_mask(
    model: Transformer,
    x: Float[Array, "tokens features"],
    corrupted: Float[Array, "senders tokens features"],
    right: Int[Array, ""],
    wrong: Int[Array, ""],
) -> Callable[[Float[Array, "edges"]], Float[Array, ""]]:
    """Return the logit difference on a text as a function of the mask of all edges."""
    edges = edges_of(model.config)
    streams = _weighted(jnp.asarray(edges, x.dtype), corrupted)

    def receive(sent: Array, given: tuple[Array, Array]) -> Array:
        mask, stream = given
        return stream + _weighted(mask, sent - corrupted)

    def number(mask: Array) -> Array:
        dense = jnp.zeros(edges.shape, mask.dtype).at[np.nonzero(edges)].set(mask)
        return difference_at(model, run(model, x, receive, (dense, streams))[0], right, wrong)

    return number


def _weighted(weights: Array, sent: Array) -> Float[Array, "receivers tokens features"]:
    return jnp.einsum("rs,std->rtd", weights, sent, precision=PRECISION)


def with_added(
    model: Transformer, right: Int[Array, ""], wrong: Int[Array, ""], rules: Rules | None = None
) -> Callable[[Any], Float[Array, ""]]:
    """Return the logit difference as a function of a text's embeddings and of additions to each receiver's stream."""

    def number(given: Any) -> Array:
        state = run(model, given[0], _summed, given[1], rules)[0]
        return difference_at(model, state if rules is None else state[0], right, wrong)

    return number
