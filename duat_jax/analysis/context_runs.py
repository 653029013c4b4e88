"""The two runs of a text: with a part of it in view, and with nothing after that part attending to it."""

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
    """A text, the part of it that may be hidden, and where what is right: a pytree.

    Args:
        ids: token ids, `[tokens]`.
        hidden: true for the tokens that are seen in one run and not in the other, `[tokens]`.
        places: after which tokens the model is asked what comes next, `[asked]`.
        answers: which token is right there, `[asked]`.
    """

    ids: Int[Array, "tokens"]
    hidden: Bool[Array, "tokens"]
    places: Int[Array, "asked"]
    answers: Int[Array, "asked"]


def mean_log_probability(model: Transformer, states: Float[Array, "tokens features"], task: Task) -> Float[Array, ""]:
    """Return the mean of the right answers' log-probabilities.

    Args:
        model: a language model.
        states: the states out of which logits are read, `[tokens, features]`.
        task: what is asked.
    """
    logits = _logits(model, states[task.places])
    return jnp.take_along_axis(jax.nn.log_softmax(logits), task.answers[:, None], -1).mean()


def _logits(model: Transformer, states: Float[Array, "asked features"]) -> Float[Array, "asked vocab"]:
    """Return the logits, computed in blocks: transposed, one long sum over the vocabulary would lose digits."""
    table, head = model.unembedding, model.head
    found = jax.lax.map(lambda rows: jnp.matmul(states, alike(rows, states).T, precision=PRECISION), in_blocks(table))
    logits = jnp.moveaxis(found, 0, 1).reshape(len(states), -1)[:, : len(table)]
    if head.bias is not None:
        logits = logits + alike(head.bias[...], logits)
    return logits if head.config.cap is None else soft_cap(logits, head.config.cap, "head")


def plainly(model: Transformer, task: Task, seen: Bool[Array, "tokens"]) -> Float[Array, ""]:
    """Return the number of a plain forward pass in which every layer sees some tokens.

    Args:
        model: a language model.
        task: what is asked.
        seen: which tokens, `[tokens]`.
    """
    return mean_log_probability(model, model.states(model.embed(task.ids), seen), task)


def streams_of(model: Transformer, ids: Int[Array, "tokens"]) -> list[Array]:
    """Return the stream before each layer and after the last one, `[tokens, features]` each, of a whole text.

    Args:
        model: a language model.
        ids: the text.
    """
    recording = record_kinds(model.states, model.embed(ids), (marks.STREAM,))
    return [recording.seen[site] for site in recording.program.of_kind(marks.STREAM)]


def number(model: Transformer, task: Task, known: list[Array], seen: Bool[Array, "layers tokens"]) -> Float[Array, ""]:
    """Return the number where each layer sees some tokens, and the hidden ones are what they are in the whole text.

    Args:
        model: a language model.
        task: what is asked.
        known: the streams of the whole text.
        seen: which tokens each layer sees, `[layers, tokens]`.
    """
    x = model.first(model.embed(task.ids))
    for i, block in enumerate(model.stack.blocks):
        with jax.named_scope(f"layers.{i}"):
            x = jnp.where(task.hidden[:, None], known[i + 1], block(x, seen[i]))
    x = x if model.final_norm is None else model.final_norm(x)
    return mean_log_probability(model, model.head.states(x), task)
