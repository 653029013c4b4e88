"""Attention with one source replaced: as its part says with everything held, and by running the model again."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

import duat_jax as duat
from duat_jax.edits import Edit
from duat_jax.models.sites import KEYS, PATTERN, QUERIES
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import alike
from duat_jax.transform import marks
from duat_jax.transform.keys import Site
from duat_jax.transform.query import answer, question_of
from duat_jax.transform.recording import Recording

MOVING = {
    "nothing": (False, False, False),
    "norms": (True, False, False),
    "attention": (False, True, False),
    "norms and attention": (True, True, False),
    "MLPs": (False, False, True),
    "everything": (True, True, True),
}
"""Parts of the model that are computed anew when a source is replaced, the rest held: the norms before attention, its
earlier patterns, and later MLPs, each with the norm before it."""
FREE = "everything"
RESAMPLED, ZERO = "resampled", "zero"
"""Replacements of a source: its value on another text at the same place, or zero."""


class Place(NamedTuple):
    """A head's attention at a token, to one token rather than to another.

    Args:
        head: the head.
        query: the token that attends.
        key: the token that is attended to.
        contrast: the token whose score is subtracted.
    """

    head: int | Int[Array, ""]
    query: int | Int[Array, ""]
    key: int | Int[Array, ""]
    contrast: int | Int[Array, ""]


class Sources(NamedTuple):
    """Sources in the stream; each is one part at one token.

    Args:
        parts: 0 for the token's embedding, otherwise the number of the MLP's layer, counted from 1.
        tokens: the token at which each is written to the stream.
    """

    parts: Int[Array, "*sources"]
    tokens: Int[Array, "*sources"]


class Runs(NamedTuple):
    """Changes of `log(attention to key / attention to contrast)` when single sources are replaced.

    Args:
        predicted: with everything held, by the closed form, for each replacement in `RESAMPLED, ZERO`.
        resampled: the model run again with the source resampled, for everything in `MOVING`.
        zero: the model run again with the source set to zero, nothing held.
        gradient: the gradient of the model, nothing held, times the change of the source, for each replacement.
    """

    predicted: Float[Array, "replacements sources"]
    resampled: Float[Array, "moving sources"]
    zero: Float[Array, "sources"]
    gradient: Float[Array, "replacements sources"]


def _mlp(layer: int) -> Site:
    return Site(marks.TERM_OUTPUT, duat.Key((f"layers.{layer}",), "mlp", 0))


def _forward(model: Transformer, layer: int) -> Any:
    return partial(model.stream, layers=layer + 1)


def _written(model: Transformer, ids: Array, recording: Recording, layer: int) -> Float[Array, "parts tokens features"]:
    token: Any = model.embedding.token  # type: ignore[union-attr]
    x = recording.arguments[0]
    embedded = alike(token[...][ids], x) * jnp.asarray(model.config.embedding_scale, x.dtype)
    return jnp.stack([embedded, *(recording.seen[_mlp(i)] for i in range(layer))])


@partial(jax.jit, static_argnames="layer")
def written(
    model: Transformer, ids: Int[Array, "tokens"], layer: int
) -> tuple[Float[Array, "parts tokens features"], Float[Array, "heads queries keys"]]:
    """Return the vector that every source writes to the stream, and the attention pattern of a layer."""
    recording = duat.record(_forward(model, layer))(model.embed(ids))
    pattern = recording.seen[Site(marks.HOLD, duat.Key((f"layers.{layer}",), PATTERN, 0))]
    return _written(model, ids, recording, layer), pattern


@partial(jax.jit, static_argnames="layer")
def runs(
    model: Transformer,
    ids: Int[Array, "tokens"],
    layer: int,
    place: Place,
    sources: Sources,
    values: Float[Array, "sources features"],
) -> Runs:
    """Replace each source alone, by a value or by zero; predict how the attention changes, and run the model again."""
    forward, x = _forward(model, layer), model.embed(ids)
    recording = duat.record(forward)(x)
    before = _written(model, ids, recording, layer)
    value = _score(model, layer, recording.dynamics.points, place)
    replacements = jnp.stack([values, jnp.zeros_like(values)])

    def changed(source: Sources, new: Array) -> Array:
        """Return what every source writes to the stream with one of them replaced."""
        return before.at[source.parts, source.tokens].set(new)

    def predicted(source: Sources, new: Array) -> Array:
        return _held(model, recording, layer, changed(source, new) - before, place) - value

    def run_again(source: Sources, new: Array, moving: Array) -> Array:
        after = changed(source, new)
        replaced = jnp.zeros(before.shape[:2], bool).at[source.parts, source.tokens].set(True)[..., None]
        edits = _edits(recording, after, replaced, moving, layer)
        edited = duat.record(duat.edit(forward, edits))(x + (after - before)[0])
        return _score(model, layer, edited.dynamics.points, place) - value

    def added(change: Array) -> Array:
        edits = {_mlp(i): Edit(added=change[i + 1]) for i in range(layer)}
        return _score(model, layer, duat.record(duat.edit(forward, edits))(x + change[0]).dynamics.points, place)

    def over(replacements: Array, moving: Array) -> Array:
        """Run the model once for each replacement and what moves in it, all sources at a time."""
        return jax.lax.map(lambda of: jax.vmap(run_again, (0, 0, None))(sources, *of), (replacements, moving))

    slope = jax.grad(added)(jnp.zeros_like(before))[sources.parts, sources.tokens]
    modes = jnp.array([*MOVING.values(), MOVING[FREE]])
    measured = over(replacements[jnp.array([0] * len(MOVING) + [1])], modes)
    return Runs(
        predicted=jnp.stack([jax.vmap(predicted)(sources, new) for new in replacements]),
        resampled=measured[:-1],
        zero=measured[-1],
        gradient=((replacements - before[sources.parts, sources.tokens]) * slope).sum(-1),
    )


def _edits(recording: Recording, after: Array, replaced: Array, moving: Array, layer: int) -> dict[Site, Edit]:
    """Return the edits that replace a source, and set all that doesn't move to what it is in the recording."""
    norms, attention, mlps = moving

    def held(site: Site, moves: Array) -> Edit:
        seen = recording.seen[site]
        return Edit(kept=moves.astype(seen.dtype), added=jnp.where(moves, 0, seen))

    edits = {}
    for site in recording.program.of_kind(marks.HOLD):
        # The norm before an MLP moves with it: an MLP whose input may grow without bound overflows.
        if site.key.name.endswith(".scale") and not site.key.name.startswith("norm_2"):
            edits[site] = held(site, norms)
        if site.key.name == PATTERN:
            edits[site] = held(site, attention)
    for i in range(layer):
        moves = mlps & ~replaced[i + 1]
        edits[_mlp(i)] = Edit(kept=moves.astype(after.dtype), added=jnp.where(moves, 0, after[i + 1]))
    return edits


def _held(model: Transformer, recording: Recording, layer: int, change: Array, place: Place) -> Array:
    """Return the difference of scores by the closed form, in which sources enter linearly, with changed sources."""
    steps = {step.site.key: step for step in recording.program.steps(marks.POINT)}
    targets = [steps[duat.Key((f"layers.{layer}",), name, 0)] for name in (QUERIES, KEYS)]
    provided = {_mlp(i): recording.seen[_mlp(i)] + change[i + 1] for i in range(layer)}
    question = question_of(recording, targets[0], linear=provided)
    question = replace(question, wanted=frozenset(step.site for step in targets))
    _, points = answer(recording, question, targets, [recording.arguments[0] + change[0]], provided)
    return _score(model, layer, {site.key: point for site, point in points.items()}, place)


def _score(model: Transformer, layer: int, points: Any, place: Place) -> Array:
    """Return `log(attention to key / attention to contrast)`, the difference of the scores of the two."""
    block: Any = model.stack.blocks[layer]
    attention = block.attention
    queries, keys = (points[duat.Key((f"layers.{layer}",), name, 0)] for name in (QUERIES, KEYS))
    of_head = keys[:, place.head // (attention.heads // attention.key_value_heads)]
    difference = of_head[place.key] - of_head[place.contrast]
    return attention.scale * jnp.dot(queries[place.query, place.head], difference, precision=jax.lax.Precision.HIGHEST)
