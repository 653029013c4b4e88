"""Copying of a repeated random sequence: losses of both occurrences, and the heads that cause the gain."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import InvalidInput
from duat_jax.evaluation.running_text import token_losses
from duat_jax.in_context.compute import ledger
from duat_jax.in_context.result import Ledger
from duat_jax.in_context.runs import Task, number, readings
from duat_jax.interpret.contrast.compute import HEADS
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.recording import record_kinds
from duat_jax.transform.stored_program import stored_program


class Copying(NamedTuple):
    """Losses on both occurrences of a random sequence, and the decomposition of their difference.

    Args:
        first: the cross-entropy of every token but the first, at the first occurrence, in nats, `[tokens − 1]`.
        second: the same at the second occurrence, `[tokens − 1]`.
        ledger: the second occurrence's mean log-probability with the first one visible minus hidden.
        removed: how many heads are ablated, those with the largest parts: set to their values without the first
            occurrence.
        predicted: the predicted decrease of the gain: the sum of their parts.
        measured: the measured decrease of the gain: the model run again.
    """

    first: Float[np.ndarray, "predicted"]
    second: Float[np.ndarray, "predicted"]
    ledger: Ledger
    removed: tuple[int, ...]
    predicted: tuple[float, ...]
    measured: tuple[float, ...]


def repeated(start: Sequence[int], sequence: Int[np.ndarray, "tokens"]) -> Task:
    """Return a task with a repeated sequence: its first occurrence can be hidden, its second is predicted.

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


@stored_program
def without_heads(model: Transformer, task: Task, removed: Bool[Array, "runs layers heads"]) -> Float[Array, "runs"]:
    """Run the model with heads set to their values without the hidden part, and return the mean log-probability."""
    run = partial(number, model, task)
    first, second = readings(model, task)
    recording = record_kinds(run, second, (marks.POINT,))
    sites = [site for site in recording.program.of_kind(marks.POINT) if site.key.name == HEADS]

    def run_without(removed: Array) -> Array:
        edits = {
            site: Edit(~chosen, jnp.where(chosen, recording.seen[site], 0))
            for site, chosen in zip(sites, removed[:, None, :, None], strict=True)
        }
        return edit(run, edits)(first)

    return jax.lax.map(run_without, removed)


def measure_copying(model: Transformer, start: Sequence[int], tokens: int, *, seed: int = 0, heads: int = 4) -> Copying:
    """Measure the loss on both occurrences of a random sequence, and decompose the gain.

    Args:
        model: a causal language model.
        start: the tokens that a text begins with.
        tokens: the sequence's length.
        seed: the seed of the sequence.
        heads: how many of the heads with the largest parts are ablated, cumulatively.

    Raises:
        InvalidInput: if the model isn't a causal language model, or the sequence has one token, or is too long when
            repeated.

    Source: Olsson et al., "In-context Learning and Induction Heads", 2022.
    """
    if tokens < 2:
        raise InvalidInput(
            f"a sequence of {tokens} tokens can't be predicted from its first occurrence: give at least 2 tokens"
        )
    sequence = np.random.default_rng(seed).integers(0, model.config.vocab, tokens)
    task = repeated(start, sequence)
    gain = ledger(model, task, run_again=False)
    order = np.argsort(-gain.heads, axis=None)[:heads]
    removed = np.zeros((len(order), gain.heads.size), bool)
    for i in range(len(order)):
        removed[i, order[: i + 1]] = True
    again = on_host(without_heads(model, task, removed.reshape(-1, *gain.heads.shape)))
    losses = on_host(token_losses(model, task.ids[None])[0])
    first = len(start) + np.arange(tokens - 1)
    return Copying(
        losses[first],
        losses[np.asarray(task.places)],
        gain,
        tuple(range(1, len(order) + 1)),
        tuple(np.cumsum(gain.heads.ravel()[order]).tolist()),
        tuple((gain.values[0] - again).tolist()),
    )
