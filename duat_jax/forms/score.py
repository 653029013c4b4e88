"""Attention scores: a pre-softmax score, split exactly over pairs of sources of the query and the key."""

from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from duat_jax.forms import decomposition
from duat_jax.forms.completeness import Completeness, completeness_of
from duat_jax.forms.decomposition import require_flowing, times
from duat_jax.operators.precision import PRECISION
from duat_jax.transform import marks
from duat_jax.transform.affinity import INPUT
from duat_jax.transform.compiled import compiled
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Marked, Occurrence, Site
from duat_jax.transform.liveness import ProgramQuestion
from duat_jax.transform.query import at_zero, pull_back, question_of, require_affine
from duat_jax.transform.recording import Recording

KINDS = (*decomposition.KINDS, marks.POINT)
"""The marks that are needed to split a score."""


class ScoreSide(NamedTuple):
    """Queries or keys of one head, with a weight for each token: `v = Σ_t weights_t v_t`.

    Args:
        head: its number among the heads of the mark.
        weights: the weight of each token, `[tokens]`: one at a single token; one and minus one for a difference of two.
    """

    head: int | Int[Array, ""]
    weights: Float[Array, "tokens"]


class Vector(NamedTuple):
    """A query or a key, split exactly over its sources: it is the sum of all fields.

    The first axis of each array is the head's features; for marks inside a scan, the axes of its steps follow.

    Args:
        input: every token of the argument, `[head_features, tokens]`, in the argument's structure.
        terms: every term at every token, `[head_features, tokens]`.
        heads: the output of every head at every token, `[head_features, tokens, heads]`, where it counts as a source.
        offsets: every bias and norm offset, `[head_features]`.
        unmarked: constants without a mark, `[head_features]`; zero where there are none.
    """

    input: Any
    terms: Marked[Float[Array, "head_features ..."]]
    heads: Marked[Float[Array, "head_features ..."]]
    offsets: Marked[Float[Array, "head_features ..."]]
    unmarked: Float[Array, "head_features"]

    @property
    def columns(self) -> Float[Array, "head_features sources"]:
        """All sources as columns of one matrix, in the order of the fields."""
        return jnp.concatenate([part.reshape(len(part), -1) for part in jax.tree.leaves(self)], 1)


class Score(NamedTuple):
    """A score, or a difference of scores, as a sum over pairs of sources: `⟨q, k⟩ = Σ_{a,b} ⟨q^a, k^b⟩`.

    Args:
        queries: the query, split.
        keys: the key, or the difference of keys, with the factor of the scores in it, split.
        completeness: the score of the forward pass, the sum of all pairs, error and tolerance.
    """

    queries: Vector
    keys: Vector
    completeness: Completeness

    @property
    def pairs(self) -> Float[Array, "query_sources key_sources"]:
        """The contribution of every pair of sources to the score."""
        return _pairs(self.queries, self.keys)


def _pairs(queries: Vector, keys: Vector) -> Float[Array, "query_sources key_sources"]:
    return jnp.matmul(queries.columns.T, keys.columns, precision=PRECISION)


def split_score(
    recording: Recording,
    queries: Occurrence,
    keys: Occurrence,
    query: ScoreSide,
    key: ScoreSide,
    *,
    through: tuple[Site, ...] = (),
) -> Score:
    """Split a pre-softmax score, or a difference of scores, exactly over pairs of sources.

    With norms held, a query and a key are sums over their sources, carried there through earlier held attention: the
    input's tokens, the terms at every token, and the biases by name; rotations and norms of queries and keys included.
    A score is bilinear in the two:

        Σ_t a_t Σ_s b_s ⟨q_t, k_s⟩ = Σ_{a,b} ⟨q^a, k^b⟩

    Where the outputs of earlier heads count as sources (`through`), every other path ends there: the remaining sources
    come directly along the stream.

    Args:
        recording: a function's forward pass, from `duat.record`.
        queries: the point that marks the queries, `[tokens, heads, head_features]`.
        keys: the point that marks the keys, `[tokens, key_value_heads, head_features]`.
        query: the head and the weights `a` of the queries.
        key: the head and the weights `b` of the keys: the factor of the scores, negative for subtracted keys.
        through: points of earlier heads' outputs, `[tokens, heads, head_features]`, that count as sources.

    Returns:
        The two sides, and the completeness of all pairs.

    Raises:
        DuatError: if there are no such points; if the argument is all whole numbers.
        NotAffine: naming each operation that isn't linear, its source line and the missing mark.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax import offset, point, record
        >>> def fn(x):
        ...     queries = point(x[:, None] + offset(jnp.array([1.0, 0.0]), "bias"), "queries")
        ...     return queries, point(2 * x[:, None], "keys")
        >>> recording = record(fn)(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
        >>> queries, keys = recording.program.steps("point")
        >>> last, first = ScoreSide(0, jnp.array([0.0, 1.0])), ScoreSide(0, jnp.array([1.0, 0.0]))
        >>> split_score(recording, queries, keys, last, first).pairs[:3, 0].tolist()  # tokens 0 and 1, bias; token 0
        [0.0, 22.0, 2.0]

    Source: Wang & Li, Eq. 35, for the score; its split follows from the closed form of each stream, Eq. 34.
    """
    return split_scores(recording, (queries,), (keys,), [query], [key], through)


def split_scores(
    recording: Recording,
    queries: tuple[Occurrence, ...],
    keys: tuple[Occurrence, ...],
    query: list[ScoreSide],
    key: list[ScoreSide],
    through: tuple[Site, ...] = (),
) -> Score:
    """Split `⟨q, k⟩` with `q` and `k` summed over points: of one layer, where the weights of others are zero."""
    for target in (*queries, *keys):
        require_affine(recording, target)
    require_flowing(recording.arguments)
    return _split_scores(recording, queries, keys, query, key, through)


@partial(compiled, static_argnames=("queries", "keys", "through"))
def _split_scores(
    recording: Recording,
    queries: tuple[Occurrence, ...],
    keys: tuple[Occurrence, ...],
    query: list[ScoreSide],
    key: list[ScoreSide],
    through: tuple[Site, ...],
) -> Score:
    q, k = (
        _weighted([recording.at(step) for step in steps], sides) for steps, sides in ((queries, query), (keys, key))
    )
    value = jnp.dot(q, k, precision=PRECISION)
    left, left_rounded, left_eps = _split(recording, [*queries], query, k, through)
    right, right_rounded, right_eps = _split(recording, [*keys], key, q, through)
    pairs = _pairs(left, right)
    # The pairs are rounded, and each side's parts before they are summed.
    rounded, eps = [pairs, *left_rounded, *right_rounded, q * k], [0.0, *left_eps, *right_eps, 0.0]
    completeness = completeness_of(value, [pairs], rounded, eps)
    return Score(left, right, completeness)


def _weighted(values: list[Array], sides: list[ScoreSide]) -> Float[Array, "head_features"]:
    """Return the sum of values at several points, with a weight for each token."""
    parts = [
        jnp.einsum("t,tf->f", side.weights, value[:, side.head], precision=PRECISION)
        for value, side in zip(values, sides, strict=True)
    ]
    return reduce(jnp.add, parts)


def _split(
    recording: Recording,
    targets: list[Occurrence],
    sides: list[ScoreSide],
    opposite: Float[Array, "head_features"],
    through: tuple[Site, ...],
) -> tuple[Vector, list[Array], list[float]]:
    """Return one side's sources, the summands of its product with the opposite side, and their eps."""
    program, seen, dtype = recording.program, recording.seen, opposite.dtype
    terms, offsets = _sources(recording, targets)
    question = _question(recording, targets, [*terms, *offsets, *through])

    unmarked = jnp.zeros_like(opposite)
    if recording.traced.affinity.adds_a_constant(*targets):
        unmarked = _weighted([at_zero(recording, question, target, {}) for target in targets], sides)
    # One feature of the head after another, and last the opposite side, whose summands are rounded one by one.
    rows = jnp.concatenate([jnp.eye(len(opposite), dtype=dtype), opposite[None]])

    def pulled(row: Array) -> tuple[list[Array | None], Seen]:
        readouts = [_readout(recording, *each, row) for each in zip(targets, sides, strict=True)]
        return pull_back(recording, question, targets, readouts, {})

    on_input, on_marks = jax.vmap(pulled)(rows)
    input_parts = [
        jnp.zeros((len(rows), *jnp.shape(x)), dtype) if u is None else times(u, x, dtype)
        for u, x in zip(on_input, recording.arguments, strict=True)
    ]
    by_mark = {site: times(u, seen[site], dtype) for site, u in on_marks.items()}

    def by_feature(part: Array, axes: int) -> Array:
        return part.sum(range(1 + axes, part.ndim))[:-1]

    vector = Vector(
        jax.tree.unflatten(recording.in_tree, [by_feature(part, 1) for part in input_parts]),
        Marked({s.key: by_feature(by_mark[s], len(program.lengths(s)) + 1) for s in terms}),
        Marked({s.key: by_feature(by_mark[s], len(program.lengths(s)) + 2) for s in through}),
        Marked({s.key: by_feature(by_mark[s], len(program.lengths(s))) for s in offsets}),
        unmarked,
    )
    rounded = [part[-1] for part in (*input_parts, *by_mark.values())]
    rounding = recording.traced.rounding(question)
    eps = [*rounding.arguments, *(rounding.at(program.place(site).path) for site in by_mark), rounding.coarsest]
    return vector, [*rounded, unmarked * opposite], eps


def _question(recording: Recording, targets: list[Occurrence], linear: list[Site]) -> ProgramQuestion:
    """Build the question for several targets together."""
    question = question_of(recording, targets[0], linear=linear)
    return replace(question, wanted=frozenset(target.site for target in targets))


def _sources(recording: Recording, targets: list[Occurrence]) -> tuple[list[Site], list[Site]]:
    """Return the terms, by their outputs where these are marked, and the offsets that a query or a key depends on."""
    program, affinity = recording.program, recording.traced.affinity
    every = chain(*(affinity.sources(affinity.at(target).sources) for target in targets))
    reached = {step.site for step in every if step != INPUT}
    outputs = {site.key: site for site in program.of_kind(marks.TERM_OUTPUT)}
    terms = [outputs.get(site.key, site) for site in program.of_kind(marks.ACTIVATION) if site in reached]
    return terms, [site for site in program.of_kind(marks.OFFSET) if site in reached]


def _readout(recording: Recording, target: Occurrence, side: ScoreSide, row: Float[Array, "head_features"]) -> Array:
    return jnp.zeros_like(recording.at(target)).at[:, side.head].set(side.weights[:, None] * row)


def neurons_of(
    recording: Recording,
    target: Occurrence,
    side: ScoreSide,
    term: Site,
    token: int | Int[Array, ""],
    *,
    through: tuple[Site, ...] = (),
) -> Float[Array, "head_features neurons"]:
    """Split one term's part of a query or a key at one token over its neurons."""
    require_affine(recording, target)
    question = question_of(recording, target, linear=[term, *through])

    def row(row: Float[Array, "head_features"]) -> Array:
        _, on_marks = pull_back(recording, question, target, _readout(recording, target, side, row), {})
        return (on_marks[term] * recording.seen[term])[token]

    return jax.vmap(row)(jnp.eye(recording.at(target).shape[-1], dtype=recording.at(target).dtype))
