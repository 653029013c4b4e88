"""Copying: a random sequence of tokens twice, and what makes the second one easier than the first."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import BadText
from duat_jax.evaluation.running_text import token_losses
from duat_jax.in_context.compute import Ledger, ledger
from duat_jax.in_context.runs import Task, number, readings
from duat_jax.interpret.contrast.compute import HEADS
from duat_jax.models.transformer import Transformer
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.recording import record_kinds


class Copying(NamedTuple):
    """What a model loses on a random sequence the first time and the second, and what brings the gain.

    Args:
        first: the loss on every token but the first of its first occurrence, in nats, `[tokens − 1]`.
        second: the same of its second occurrence, `[tokens − 1]`.
        ledger: the second occurrence's mean log-probability with the first one in view minus without.
        removed: how many of the heads with the largest parts mix what they mix without the first occurrence.
        predicted: by how much less is said to be gained then: the sum of their parts.
        measured: by how much less is gained, the model run again.
    """

    first: Float[np.ndarray, "predicted"]
    second: Float[np.ndarray, "predicted"]
    ledger: Ledger
    removed: tuple[int, ...]
    predicted: tuple[float, ...]
    measured: tuple[float, ...]


def repeated(start: Sequence[int], sequence: Int[np.ndarray, "tokens"]) -> Task:
    """Return a sequence twice, the first time as what may be hidden, and its second time asked token by token.

    Args:
        start: the tokens that a text begins with.
        sequence: the token ids.

    Example:
        >>> task = repeated([0], np.array([7, 8, 9]))
        >>> task.ids.tolist(), task.places.tolist(), task.answers.tolist()
        ([0, 7, 8, 9, 7, 8, 9], [4, 5], [8, 9])
    """
    length = len(sequence)
    ids = np.concatenate([start, sequence, sequence]).astype(np.int32)
    hidden = np.repeat([False, True, False], [len(start), length, length])
    places = len(start) + length + np.arange(length - 1)
    return Task(*map(jnp.asarray, (ids, hidden, places, ids[places + 1])))


@jax.jit
def without_heads(model: Transformer, task: Task, gone: Bool[Array, "runs layers heads"]) -> Float[Array, "runs"]:
    """Return the number while some heads mix what they mix without the hidden part, the model run again.

    Args:
        model: a causal language model.
        task: the text, its hidden part, and what is asked after it.
        gone: which heads, `[runs, layers, heads]`.
    """
    run = partial(number, model, task)
    first, second = readings(model, task)
    recording = record_kinds(run, second, (marks.POINT,))
    sites = [site for site in recording.program.of_kind(marks.POINT) if site.key.name == HEADS]

    def one(gone: Array) -> Array:
        edits = {
            site: Edit(~which, jnp.where(which, recording.seen[site], 0))
            for site, which in zip(sites, gone[:, None, :, None], strict=True)
        }
        return edit(run, edits)(first)

    return jax.lax.map(one, gone)


def copying(model: Transformer, start: Sequence[int], tokens: int, *, seed: int = 0, heads: int = 4) -> Copying:
    """Measure how much easier a random sequence is the second time, and split the gain.

    Args:
        model: a causal language model.
        start: the tokens that a text begins with.
        tokens: the sequence's length.
        seed: which sequence.
        heads: how many of the heads with the largest parts are removed, one after another.

    Raises:
        BadText: if the model is no causal language model, or the sequence is of one token, or too long twice.

    Source: Olsson et al., "In-context Learning and Induction Heads", 2022.
    """
    if tokens < 2:
        raise BadText(f"a sequence of {tokens} tokens is copied: give at least 2, of which the second can be known")
    sequence = np.random.default_rng(seed).integers(0, model.config.vocab, tokens)
    task = repeated(start, sequence)
    found = ledger(model, task, run_again=False)
    order = np.argsort(-found.heads, axis=None)[:heads]
    gone = np.zeros((len(order), found.heads.size), bool)
    for i in range(len(order)):
        gone[i, order[: i + 1]] = True
    again = np.asarray(without_heads(model, task, gone.reshape(-1, *found.heads.shape)))
    losses = np.asarray(token_losses(model, task.ids[None])[0])
    first = len(start) + np.arange(tokens - 1)
    return Copying(
        losses[first],
        losses[np.asarray(task.places)],
        found,
        tuple(range(1, len(order) + 1)),
        tuple(np.cumsum(found.heads.ravel()[order]).tolist()),
        tuple((found.values[0] - again).tolist()),
    )
