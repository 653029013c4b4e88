"""Effects of replaced tokens: the model run again, by the distance of what it predicts, and the exact secant."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import duat_jax as duat
from duat_jax.in_context.runs import logits_of
from duat_jax.models.transformer import Transformer
from experiments.long_context.reading import bins, label

SPAN = 16
"""The number of neighbouring tokens that are replaced."""
CHUNK = 128
"""The number of positions whose logits are there at once; it divides every length."""
PREDICTED, KEPT = 16, 32
"""The last tokens of a text whose loss the secant splits, and those that stay when all others are replaced."""


@jax.jit
def states(model: Transformer, ids: Int[Array, "tokens"]) -> Float[Array, "tokens features"]:
    """Return the states from which logits are read."""
    return model.states(model.embed(ids))


class Change(NamedTuple):
    """Changes of the predictions at every position from one run to another.

    Args:
        divergence: `KL(p ‖ q)` of the next token, `p` before the change and `q` after it, in nats, `[tokens]`.
        loss: how much the loss of the text's own next token grows, in nats, `[tokens]`; 0 at the last token.
    """

    divergence: Float[Array, "tokens"]
    loss: Float[Array, "tokens"]


def _in_chunks(parts: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(part.reshape(-1, min(CHUNK, len(part)), *part.shape[1:]) for part in parts)


def _next(ids: Array) -> Array:
    return jnp.append(ids[1:], ids[-1])


@jax.jit
def compare(
    model: Transformer, before: Float[Array, "tokens features"], after: Float[Array, "tokens features"], ids: Array
) -> Change:
    """Return the change of the predictions between two runs."""

    def of_chunk(chunk: tuple[Array, Array, Array]) -> Change:
        *both, answers = chunk
        p, q = (jax.nn.log_softmax(logits_of(model, part)) for part in both)
        grown = jnp.take_along_axis(p - q, answers[:, None], -1)[:, 0]
        return Change((jnp.exp(p) * (p - q)).sum(-1), grown)

    change = jax.lax.map(of_chunk, _in_chunks((before, after, _next(ids))))
    divergence, loss = (part.reshape(-1) for part in change)
    return Change(divergence, loss.at[-1].set(0))


@jax.jit
def losses(model: Transformer, states: Float[Array, "tokens features"], ids: Array) -> Float[Array, "predicted"]:
    """Return the loss of every token but the first."""

    def of_chunk(chunk: tuple[Array, Array]) -> Array:
        return jnp.take_along_axis(jax.nn.log_softmax(logits_of(model, chunk[0])), chunk[1][:, None], -1)[:, 0]

    return -jax.lax.map(of_chunk, _in_chunks((states, _next(ids)))).reshape(-1)[:-1]


def replaced(
    ids: Int[np.ndarray, "tokens"], other: Int[np.ndarray, "tokens"], begin: int, span: int = SPAN
) -> Int[np.ndarray, "tokens"]:
    """Return a text with a span of its tokens replaced by those of another text at the same places."""
    places = np.arange(len(ids))
    return np.where((places >= begin) & (places < begin + span), other, ids)


def by_distance(change: Change, begin: int, span: int = SPAN) -> dict[str, list[float]]:
    """Return the change as a mean over the positions of each bin of distances from the last replaced token."""
    divergence, loss = (np.asarray(part, np.float64) for part in change)
    later = np.arange(begin + span, len(divergence) - 1)
    of_bins = bins(later - (begin + span - 1))

    def means(values: np.ndarray) -> list[float]:
        return [float(values[later[of_bins == i]].mean()) for i in range(1, of_bins.max() + 1)]

    return {"divergence": means(divergence), "loss": means(loss), "above": means((divergence > 0.01).astype(float))}


@jax.jit
def last_loss(model: Transformer, x: Float[Array, "tokens features"], ids: Array) -> Float[Array, ""]:
    """Return the mean loss of a text's last tokens."""
    logits = logits_of(model, model.states(x)[-PREDICTED - 1 : -1])
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), ids[-PREDICTED:, None], -1).mean()


@jax.jit
def parts(model: Transformer, ids: Array, other: Array) -> tuple[Float[Array, "tokens"], Float[Array, ""]]:
    """Return the exact parts of every token in the growth of the last tokens' loss, and the growth."""
    x, y = model.embed(ids), model.embed(other)
    split = duat.secant(partial(last_loss, model, ids=ids))(y, x)
    return split.parts.sum(-1), split.difference


def groups(tokens: int) -> dict[str, Int[np.ndarray, "_"]]:
    """Return the replaced tokens of a text in groups: the first one, and the others by their distance.

    Example:
        >>> {name: len(places) for name, places in groups(128).items()}
        {'the first token': 1, '16 to 63': 48, '64 to 255': 47}
    """
    # Distances are from the first position at which a token is predicted whose loss counts.
    places = np.arange(1, tokens - KEPT)
    of_bins = bins(tokens - 1 - PREDICTED - places)
    return {
        "the first token": np.array([0]),
        **{label(i): places[of_bins == i] for i in range(of_bins.min(), of_bins.max() + 1)},
    }


def split_and_again(
    model: Transformer, ids: Int[np.ndarray, "tokens"], other: Int[np.ndarray, "tokens"]
) -> dict[str, dict[str, float]]:
    """Return each group of tokens' part by the secant, and the growth of the loss with this group alone replaced."""
    own = jnp.asarray(ids)
    of_tokens, difference = parts(model, own, jnp.asarray(np.append(other[:-KEPT], ids[-KEPT:])))
    before = last_loss(model, model.embed(own), own)

    def again(places: np.ndarray) -> float:
        changed = ids.copy()
        changed[places] = other[places]
        return float(last_loss(model, model.embed(jnp.asarray(changed)), own) - before)

    found = {
        name: {"part": float(of_tokens[places].sum()), "run again": again(places)}
        for name, places in groups(len(ids)).items()
    }
    return found | {"all": {"part": float(difference), "run again": again(np.arange(len(ids) - KEPT))}}
