"""The two compared runs of a text: with a part visible, and with that part hidden or replaced."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION, alike, in_blocks
from duat_jax.nn.pattern import soft_cap
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds


class Task(NamedTuple):
    """A text, the part that differs between both runs, and the right answers: a pytree.

    Args:
        ids: token ids, `[tokens]`.
        hidden: true for the part's tokens, `[tokens]`.  In the second run nothing after them attends to them, unless
            `other` is given.
        places: the positions after which the next token is predicted, `[asked]`.
        answers: the right next tokens there, `[asked]`.
        other: the text of the second run, in which everything is visible: the same ids except at the part, `[tokens]`.
    """

    ids: Int[Array, "tokens"]
    hidden: Bool[Array, "tokens"]
    places: Int[Array, "asked"]
    answers: Int[Array, "asked"]
    other: Int[Array, "tokens"] | None = None


class LayerReads(NamedTuple):
    """The inputs that each layer reads from a text's part: the streams before it, and the visible tokens.

    Args:
        streams: the residual stream before each layer, read at the part's tokens, `[layers, tokens, features]`.
        seen: true for the tokens that each layer sees, `[layers, tokens]`.
    """

    streams: Float[Array, "layers tokens features"]
    seen: Bool[Array, "layers tokens"]


def readings(model: Transformer, task: Task) -> tuple[LayerReads, LayerReads]:
    """Return the inputs that each layer reads from the part, for both runs."""
    streams = streams_of(model, task.ids)
    seen = jnp.ones(streams.shape[:2], bool)
    if task.other is None:
        return LayerReads(streams, seen), LayerReads(streams, seen & ~task.hidden)
    return LayerReads(streams, seen), LayerReads(streams_of(model, task.other), seen)


def mean_log_probability(model: Transformer, states: Float[Array, "tokens features"], task: Task) -> Float[Array, ""]:
    """Return the mean log-probability of the right answers."""
    logits = logits_of(model, states[task.places])
    return jnp.take_along_axis(jax.nn.log_softmax(logits), task.answers[:, None], -1).mean()


def logits_of(model: Transformer, states: Float[Array, "asked features"]) -> Float[Array, "asked vocab"]:
    """Return the logits, in blocks of the vocabulary, since the transpose of one large product loses digits."""
    table, head = model.unembedding, model.head
    blocks = jax.lax.map(lambda rows: jnp.matmul(states, alike(rows, states).T, precision=PRECISION), in_blocks(table))
    logits = jnp.moveaxis(blocks, 0, 1).reshape(len(states), -1)[:, : len(table)]
    if head.bias is not None:
        logits = logits + alike(head.bias[...], logits)
    return logits if head.config.cap is None else soft_cap(logits, head.config.cap, "head")


def mean_log_probabilities(model: Transformer, task: Task) -> Float[Array, "two"]:
    """Return the mean log-probability of both runs, from plain forward passes."""
    ids, seen = (task.ids, ~task.hidden) if task.other is None else (task.other, None)
    runs = model.states(model.embed(task.ids)), model.states(model.embed(ids), seen)
    return jnp.stack([mean_log_probability(model, states, task) for states in runs])


def streams_of(model: Transformer, ids: Int[Array, "tokens"]) -> Float[Array, "layers tokens features"]:
    """Return the residual stream before each layer on a whole text."""
    recording = record_kinds(model.states, model.embed(ids), (marks.STREAM,))
    return jnp.stack([recording.seen[site] for site in recording.program.of_kind(marks.STREAM)][:-1])


def number(model: Transformer, task: Task, reading: LayerReads) -> Float[Array, ""]:
    """Return the mean log-probability with the inputs that each layer reads from the part replaced."""
    x = model.first(model.embed(task.ids))
    for i, block in enumerate(model.stack.blocks):
        with jax.named_scope(f"layers.{i}"):
            x = block(jnp.where(task.hidden[:, None], reading.streams[i], x), reading.seen[i])
    x = x if model.final_norm is None else model.final_norm(x)
    return mean_log_probability(model, model.head.states(x), task)
