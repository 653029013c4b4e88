"""Programs that split attention scores of a model, each from one recording."""

from collections.abc import Iterable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from duat_jax.forms.score import KINDS, PRECISION, Score, ScoreSide, neurons_of, split_scores
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.interpret.attention.held_pattern import pattern_of
from duat_jax.models.embedding import TokenEmbedding
from duat_jax.models.sites import HEADS, KEYS, QUERIES
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import alike
from duat_jax.nn.pattern import cap_ratio
from duat_jax.nn.scanned_stack import ScannedStack
from duat_jax.transform import marks
from duat_jax.transform.keys import Key, Occurrence, Site
from duat_jax.transform.recording import Recording, record_kinds
from duat_jax.transform.stored_program import stored_program

MOST = -1
"""In the place of a key that is compared with: the other token that is attended to most."""


def _embeddings(model: Transformer, inputs: Inputs) -> dict[str, Array]:
    """Return the summands of the embeddings, by name: of the token, of its segment, of its position."""
    x, embedding = inputs.embedded(model), model.embedding
    if not isinstance(embedding, TokenEmbedding):
        return {"patch": x}
    parts = {"token": alike(embedding.token[...][inputs.given], x) * jnp.asarray(model.config.embedding_scale, x.dtype)}
    if embedding.segment is not None:
        parts["segment"] = alike(embedding.segment[...][inputs.segments], x)
    if embedding.position is not None:
        parts["position"] = x - sum(parts.values())
    return parts


def _recorded(
    model: Transformer, inputs: Inputs, layers: Sequence[int], through_heads: bool
) -> tuple[Recording, dict[int, dict[str, Occurrence]], tuple[Site, ...]]:
    """Return the recording, the points of layers by name, and what heads before the last one mixed, as sources."""
    real: Any = jnp.asarray(inputs.real)
    deepest = max(layers)

    def states(parts: dict[str, Any]) -> Array:
        # A loop over layers is one program; of layers one after another, only those up to this one are run.
        in_loop, x = isinstance(model.stack, ScannedStack), sum(parts.values())
        return model.hidden(x, real) if in_loop else model.stream(x, deepest + 1, real)

    recording = record_kinds(states, _embeddings(model, inputs), KINDS)
    points = recording.program.steps(marks.POINT)
    earlier = [step.site for step in points if step.site.key.name == HEADS and layer_of(step.site.key) < deepest]
    by_layer = {k: {step.site.key.name: step for step in points if layer_of(step.site.key) == k} for k in layers}
    return recording, by_layer, tuple(earlier) if through_heads else ()


def layer_of(key: Key) -> int:
    """Return the number of the layer in which a mark is."""
    return int(key.scope[0].removeprefix("layers."))


class ScorePlaces(NamedTuple):
    """The places of scores, one after another.

    Args:
        chosen: by layer, one where the score is in that layer, and zero elsewhere.
        heads: their heads.
        queries: their queries.
        keys: their keys; with a second one, whose score is subtracted.
    """

    chosen: dict[int, Float[Array, "scores"]]
    heads: Int[Array, "scores"]
    queries: Int[Array, "scores"]
    keys: Int[Array, "scores keys"]


class SplitScore(NamedTuple):
    """A score, whose query and whose keys it is of, the row of the pattern, and the keys."""

    score: Score
    query: ScoreSide
    key: ScoreSide
    attention: Float[Array, "tokens"]
    keys: Int[Array, "keys"]


def scoring(model: Transformer, layer: int) -> tuple[Any, ...]:
    """Return the numbers by which a layer's attention scores; in a program of several layers they are alike."""
    attention, names = (
        model.stack.blocks[layer].attention,
        ("heads", "key_value_heads", "head_features", "scale", "cap"),
    )
    return tuple(getattr(attention, name, None) for name in names)


@partial(stored_program, static_argnames=("through_heads",))
def split_scores_at(model: Transformer, inputs: Inputs, places: ScorePlaces, through_heads: bool) -> SplitScore:
    """Split the scores at places, from one recording."""
    layers, real = [*places.chosen], jnp.asarray(inputs.real)
    recording, points, through = _recorded(model, inputs, layers, through_heads)
    attention: Any = model.stack.blocks[layers[0]].attention
    steps = {name: tuple(points[layer][name] for layer in layers) for name in (QUERIES, KEYS)}
    queries, keys = (list(map(recording.at, steps[name])) for name in (QUERIES, KEYS))
    patterns = [
        pattern_of(model.stack.blocks[layer], recording, points[layer][QUERIES].site.key.scope, real)
        for layer in layers
    ]

    def split(place: ScorePlaces) -> SplitScore:
        chosen = place.chosen.values()

        def of_layer(values: Iterable[Array]) -> Array:
            """Return that of the score's own layer."""
            return reduce(jnp.add, [c.astype(value.dtype) * value for c, value in zip(chosen, values, strict=True)])

        head, query = place.heads, place.queries
        key_head = head // (attention.heads // attention.key_value_heads)
        row = of_layer(pattern[head, query] for pattern in patterns)
        at = jnp.where(place.keys == MOST, row.at[place.keys[0]].set(-1).argmax(), place.keys)
        own_query = of_layer(each[query, head] for each in queries)
        scores = attention.scale * jnp.matmul(of_layer(k[at, key_head] for k in keys), own_query, precision=PRECISION)
        ratios = jnp.ones_like(scores) if attention.cap is None else cap_ratio(scores, attention.cap)
        signs = jnp.array([1, -1][: len(at)], scores.dtype)
        nothing = jnp.zeros(len(queries[0]), scores.dtype)
        key_weights = nothing.at[at].set(attention.scale * ratios * signs)
        sides = ScoreSide(head, nothing.at[query].set(1)), ScoreSide(key_head, key_weights)
        query_sides, key_sides = (
            [ScoreSide(side.head, c.astype(scores.dtype) * side.weights) for c in chosen] for side in sides
        )
        score = split_scores(recording, steps[QUERIES], steps[KEYS], query_sides, key_sides, through)
        return SplitScore(score, *sides, row, at)

    return jax.lax.map(split, places)


@partial(stored_program, static_argnames=("layer", "through_heads", "name", "term"))
def neurons_of_side(
    model: Transformer,
    inputs: Inputs,
    side: ScoreSide,
    token: Int[Array, ""],
    layer: int,
    through_heads: bool,
    name: str,
    term: Key,
) -> Float[Array, "head_features neurons"]:
    """Return one term's part of a query or a key at one token, neuron by neuron."""
    recording, points, through = _recorded(model, inputs, [layer], through_heads)
    return neurons_of(recording, points[layer][name], side, Site(marks.ACTIVATION, term), token, through=through)
